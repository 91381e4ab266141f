"""What an English clause says of the speaker's circumstances: home, work, household, what he has not and cannot do, in
the short forms in which news is told. Patterns alone; ``english_traits`` decides with them."""

import re

from memstore.pipelines.rules.candidates import (
    CHANGE,
    FAMILY,
    HABIT,
    HEALTH,
    IDENTITY,
    PREFERENCE,
    Rule,
)
from memstore.pipelines.rules.english_words import ADVERBS, I_AM, I_HAVE, JOBS, ME, NOT_VAGUE, RELATIVES


def _rule(pattern: str, priority: int) -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), "persona", priority)


_NOT = r"(?:can['’]?t|cannot|can\snot|don['’]?t|do\snot)"
_CANNOT = r"(?:can['’]?t|cannot|can\snot|never\slearned\s(?:how\s)?to|don['’]?t\s(?:really\s)?know\show\sto|do\snot\sknow\show\sto)"
_ABILITY = (
    r"(?:drive|swim|cook|ski|skate|surf|dance|sing|whistle|sew|bake|juggle|code|program|type|ride\s(?:a|horses)[\w ]{0,16}|read\s(?:music|sheet\smusic|braille)|play\s(?:any|an|the|chess)[\w ]{0,20}"
    r"|speak\s(?-i:[A-Z])\w+)"
)
_LACKED = (
    r"(?:driver['’]?s\slicen[cs]e|driving\slicen[cs]e|licen[cs]e\sto\sdrive|car|bike|kids?|children|pets?|dogs?|cats?|siblings?|brothers?|sisters?|tv|television|dishwasher|oven|microwave|air\sconditioning|ac|garden|garage"
    r"|allergies|degree|passport|smartphone|social\smedia|religion|partner|girlfriend|boyfriend|job|mortgage|savings|health\sinsurance|insurance|food\sallergies|dietary\srestrictions|tattoos?)"
)
_PERSON = r"(?:person|people|guy|girl|gal|man|woman|fan|lover|drinker|eater|enthusiast|buff|nerd|geek|gamer|player|reader|runner|cyclist|type|owner|addict|hater)"
_ALLOWED = r"(?:allowed|permitted|banned|forbidden|prohibited|off[\s-]limits|welcome|okay|ok|fine)"
_COMES = r"(?!(?:this|that|it|he|she|they|you|what|your|who|which|work|my\s(?:boss|job|manager|code)|mondays?|politics|people|life|everything|nothing|traffic|the)\b)"

STATES = (
    _rule(rf"(?:i['’]m|i\sam|im)\s(?:definitely\s|really\s)?more\s(?:of\s)?an?\s(?P<o>(?!(?:idiot|mess|fool|loser|problem)\b)[\w ]{{1,24}}?\s{_PERSON})$", PREFERENCE),
    _rule(rf"{I_AM}(?:not\s)?(?:an?\s)(?:big\s|huge\s|avid\s|keen\s|heavy\s|total\s)?(?P<o>(?:[\w-]+\s){{1,2}}(?:person|lover|drinker|eater|enthusiast|buff|nerd|geek|owner|hater|addict|sleeper|learner|cook|travell?er|swimmer|beginner))$", PREFERENCE),
    _rule(rf"{I_AM}(?:not|never)\s(?:an?\s(?:big\s|huge\s)?fan\sof|big\son|into|keen\son|fond\sof|crazy\sabout|comfortable\swith)\s(?P<o>{NOT_VAGUE}[^;!?]{{2,40}})$", PREFERENCE),
    _rule(rf"(?:{ME}|im\s){_CANNOT}\s(?P<o>{_ABILITY})(?:\s(?:at\sall|yet|myself))?$", PREFERENCE),
    _rule(rf"{ME}{_NOT}\s(?:really\s)?(?P<o>drive|smoke|drink|vape|gamble|cook|dance|drink\salcohol|eat\sout)(?:\s(?:at\sall|much))?$", PREFERENCE),
    _rule(rf"{ME}(?:don['’]?t|do\snot)\s(?:actually\s|even\s)?(?:have|own)\s(?:an?\s|any\s|my\sown\s)?(?P<o>{_LACKED})(?:\s(?:of\smy\sown|at\shome|either))?$", IDENTITY),
    _rule(rf"{ME}have\sno\s(?P<o>{_LACKED})$", IDENTITY),
    _rule(r"(?:can['’]?t|cannot)\s(?:eat|drink|have|stand|tolerate)\s(?P<o>(?!(?:it|this|that|them|the|you|more|any\smore)\b)[\w ,'-]{3,40})$", PREFERENCE),
    _rule(rf"(?:no\s)?(?!(?:you|they|he|she|it|this|that|there)\b)[\w '’-]{{2,28}}\s(?:are|is|aren['’]t|isn['’]t|are\snot|is\snot|are\sno\slonger|is\sno\slonger)\s(?:not\s|strictly\s|never\s|now\s|no\slonger\s)?{_ALLOWED}\s(?:in|on|at|inside|near|around)\s(?:my|our)\s(?!(?:story|novel|game|book|code|app|function|world|script|config|essay|project|schema|test)\b)[\w '’-]{{2,30}}$", PREFERENCE),
    _rule(rf"{ME}teach\s(?P<o>(?!(?:you|him|her|them|it|me|how|that|this|myself)\b)[a-z][\w '’&-]{{2,50}})$", IDENTITY),
    _rule(rf"{ME}work\s(?:only\s|mostly\s|fully\s|the\s)?(?P<o>(?:night|day|late|early|graveyard|rotating|weekend)\sshifts?|nights|weekends|shifts|remotely|remote|from\shome|part-time|full-time|freelance|overnight|for\smyself)(?:\s(?:at|in|for|as|from|most|on)\s[\w '’-]{{2,40}})?$", IDENTITY),
    _rule(rf"{ME}(?:just\s)?(?:went|turned|became)\s(?:fully\s|completely\s)?(?P<o>freelance|vegan|vegetarian|keto|self-employed|solo|part-time|full-time|remote|sober|gluten-free|teetotal)(?:\s(?:last|this|in|two|a|since)\s[\w ]{{2,20}})?$", CHANGE),
    _rule(rf"{ME}have\san?\s(?:bad|weak|sensitive|herniated|dodgy|bum)\s(?P<o>knees?|back|stomach|shoulder|heart|hip|ankle|neck|skin|disc|bladder)$", HEALTH),
    _rule(rf"{_COMES}(?P<o>[a-z][a-z -]{{2,24}})\s(?:makes?\sme\s(?:sick|ill|bloated|sneeze|nauseous|itch|break\sout|throw\sup)|gives?\sme\s(?:hives|migraines|a\srash|heartburn|stomach\saches?)|upsets?\smy\sstomach)$", HEALTH),
    _rule(rf"{ME}grew\sup\s(?:speaking|in|on|with)\s(?P<o>(?!(?:it|this|that)\b)[\w ,'’-]{{3,40}})$", IDENTITY),
    _rule(rf"{ME}live\s(?P<o>alone|by\smyself|on\smy\sown|off-grid)$", IDENTITY),
    _rule(rf"{I_AM}(?:an?\s)?(?:\w+\s)?(?P<o>(?:mum|mom|dad|father|mother|parent|grandparent|grandma|grandpa)\s(?:of|to)\s[\w ]{{2,24}})$", FAMILY),
    _rule(rf"{I_AM}(?:doing|finishing|pursuing|getting|working\stowards?)\s(?P<o>(?:an?|my)\s(?:phd|master['’]?s|mba|bachelor['’]?s|degree|residency|apprenticeship|postdoc|law\sdegree)\b[\w ,'’-]{{0,40}})$", IDENTITY),
    _rule(rf"{ME}(?P<o>(?:commute|travel\sto\swork|get\sto\swork|cycle\sto\swork|bike\sto\swork|walk\sto\swork|drive\sto\swork)\b[\w ,'’-]{{0,40}})$", HABIT),
    _rule(r"(?:my|our)\snew\s(?:place|home|flat|house|apartment|job|employer|company)\sis\s(?:in|at|with)?\s?(?P<o>(?-i:[A-Z])[\w .'’-]{1,30})$", IDENTITY),
    _rule(rf"(?:{ME}|{I_HAVE})(?:(?:have\s)?left|quit|resigned\sfrom)\s(?!(?:it|the\s(?:chat|meeting|page|house|door|app)|my\s(?:phone|keys|bag|house|laptop))\b)(?P<o>(?-i:[A-Z])[\w .&'’-]{{1,30}})\s(?:and\s(?:joined|started\sat|now\swork\s(?:at|for)|am\snow\sat)|for|to\sjoin)\s(?-i:[A-Z])[\w .&'’-]{{1,30}}$", CHANGE),
    _rule(rf"(?:my|our)\s(?:{RELATIVES})(?:\s(?-i:[A-Z])[\w'’-]+)?(?:\s(?:is|are|works?\sas)|[\'’]s)\s(?:an?\s)?(?:\w+\s){{0,3}}(?:{JOBS}|(?-i:[A-Z])[a-z]+(?:ish|ese|an|ian|ch)|corgi|poodle|beagle|labrador|tabby|siamese|retriever|husky|pug|terrier|ragdoll|persian|dachshund|collie)\b[\w ,'’-]{{0,40}}$", FAMILY),
    _rule(rf"(?:my|our)\s(?:{RELATIVES})(?:\s(?-i:[A-Z])[\w'’-]+)?(?:\sis|['’]s|\sare)\s(?:an?\s)?(?:strict\s)?(?:vegan|vegetarian|pescatarian|diabetic|pregnant|deaf|blind|retired|autistic|celiac|coeliac|left[\s-]handed|lactose[\s-]intolerant|teetotal)$", FAMILY),
    _rule(rf"(?:my|our)\s(?:{RELATIVES})(?:\s(?-i:[A-Z])[\w'’-]+)?\s(?:has|have|suffers\sfrom|was\sdiagnosed\swith)\s(?:an?\s|type\s\d\s)?(?:[\w-]+\s){{0,2}}(?:allerg(?:y|ies)|asthma|diabetes|adhd|autism|celiac|epilepsy|dyslexia|arthritis|dementia|cancer|kids|children)\b[\w ,'’-]{{0,30}}$", HEALTH),
    _rule(rf"{I_AM}(?:\d+\s(?:weeks|months)\s)?(?P<o>pregnant|breastfeeding|left[\s-]handed|colou?r[\s-]?blind|deaf|blind|hard\sof\shearing|gluten[\s-]free|sober|hypertensive)\b(?:\s(?:with|in|since|for|and)\s[\w ,'’-]{{2,30}})?$", HEALTH),
    _rule(rf"{ME}(?:don['’]?t|do\snot)\sdo\s(?P<o>caffeine|dairy|gluten|sugar|alcohol|drugs|mornings|carbs|spicy(?:\sfood)?|social\smedia|seafood|pork|red\smeat)$", PREFERENCE),
    _rule(rf"{ME}use\s(?:an?\s)(?P<o>wheelchair|hearing\said|cane|walker|screen\sreader|cpap(?:\smachine)?|insulin\spump|pacemaker)\b[\w ,'’-]{{0,30}}$", HEALTH),
    _rule(rf"{I_AM}(?:completely\s|fairly\s)?(?:new\sto|a\s(?:complete\s)?beginner\s(?:in|at|with)|self-taught\sin)\s(?P<o>(?!(?:this|that|it|the|these|your|you)\b)[\w +#.'’-]{{2,40}})$", PREFERENCE),
    _rule(rf"{ME}(?:mostly\s|mainly\s|only\s)?(?:read|watch|listen\sto|cook|eat|drink|play)\s(?:mostly|mainly|only|a\slot\sof|lots\sof)\s(?P<o>(?!(?:this|that|it|the)\b)[\w ,'’-]{{2,40}})$", PREFERENCE),
    _rule(rf"(?:{ME}|{I_HAVE})(?:co-?founded|started|opened)\s(?:my\sown\s|an?\s)(?P<o>[\w '’-]{{0,24}}(?:startup|company|business|studio|agency|shop|store|restaurant|cafe|practice|charity|nonprofit))\b[\w ,'’-]{{0,30}}$", IDENTITY),
    _rule(rf"(?:{I_AM}|we['’]re\s|we\sare\s)based\sout\sof\s(?P<o>[\w ,.'’-]{{2,30}})$", IDENTITY),
    _rule(rf"(?:my|our)\s(?:{RELATIVES})(?:\s(?-i:[A-Z])[\w'’-]+)\s(?:has|is|are|works|lives|loves|hates|likes|studies|teaches|can['’]t|doesn['’]t|turned)\s[\w ,'’-]{{1,50}}$", FAMILY),
)  # fmt: skip
AT_WORK = re.compile(
    rf"(?:{I_AM}(?:at|with|over\sat|working\sat|working\sfor))\s(?-i:[A-Z])[\w .&'’-]{{1,30}}?(?:\snow)?$|{I_AM}in\s(?-i:[A-Z])[\w .'’-]{{1,24}}?(?:\snow)?$",
    re.IGNORECASE,
)
"""Where the speaker is: for good only behind news of a move."""
BARE_NEWS = re.compile(
    rf"(?:{ME}|{I_HAVE}|we\s{ADVERBS}|we['’]ve\s{ADVERBS})?(?:just\s|finally\s|recently\s)?(?:moved(?:\shouse|\shomes?)?|relocated|switched\s(?:jobs|companies|employers)|changed\s(?:jobs|companies|employers)|(?:got\sa\s)?new\sjob)$",
    re.IGNORECASE,
)
