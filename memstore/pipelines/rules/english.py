"""What English sentences say about the speaker, order from the assistant, or tell of events.

Every pattern is anchored at the beginning of a clause, with the speaker as its subject. A clause that fits none says
nothing to keep.
"""

import re
from collections.abc import Iterator
from datetime import datetime

from memstore.pipelines.rules.candidates import (
    ALLERGY,
    CHANGE,
    DEADLINE,
    DECISION,
    EVENT,
    FAMILY,
    HABIT,
    HEALTH,
    IDENTITY,
    INSTRUCTION,
    MAX_CLAUSE_CHARS,
    PREFERENCE,
    TOOLS,
    Candidate,
    Rule,
)
from memstore.pipelines.rules.corrections import corrected
from memstore.pipelines.rules.dates import repetitions, resolve
from memstore.pipelines.rules.own_words import Sentence
from memstore.types import Kind

_CLAUSES = re.compile(
    r"\s*(?:,|;|—|--|\s-\s)\s*(?:(?:and|but|so|then)\s)?(?=(?:i|i['’](?:m|ve|d|ll)|my|we|we['’](?:re|ve|ll)|our|can|could|do|does|did|is|are|what|which|how|why|"
    r"where|when|who|please|always|never|don['’]t|no|wait|sorry|actually|scratch|make|oops|correction|it['’]?s|it|that|this|the|there|any|would|will|should|you|let|from|just|so|but|he|she|they|not|help|give|tell|show)\b)"
    r"|\s+(?:but|so)\s+(?=(?:now\s)?(?:i|we|my|our)\b)|(?<!\bmy wife)(?<!husband)(?<!partner)(?<!girlfriend)(?<!boyfriend)(?<!family)(?<!sister)(?<!brother)(?<!friend)(?<!daughter)(?<!my son)(?<!my mom)(?<!my dad)(?<!my dog)\s+and\s+(?=(?:i|i['’]m|we|my|our|please|can|could)\b)",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"(?:well|so|oh|ok(?:ay)?|um+|uh+|hmm+|hey(?: there)?|hi(?: there)?|hello(?: there)?|also|and|but|then|btw|by the way|fyi|ps|actually|anyway|anyways|honestly|basically|just so you know|for the record|as you know|"
    r"for context|context|note|reminder|thanks?(?: you)?(?: so much)?|yes|yeah|yep|no(?=,|$)|now(?=\s(?:i|we|my)\b)|sure|great|cool|in fact|to be honest|tbh|quick (?:note|update|context)|update|good (?:morning|evening|afternoon)|"
    r"(?:please\s)?(?:remember|note|keep in mind|bear in mind|know|remind me)(?: that)?(?=[\s:,])(?!\sto\b)|i (?:should|want to|wanted to|have to) (?:mention|tell you|add|say|note)(?: that)?|"
    r"(?:you should|you ought to) know(?: that)?|let me (?:tell you|introduce myself)|since(?=\s(?:i|we|my)\b)|because(?=\s(?:i|we|my)\b)|as(?=\s(?:i|we|my)\b)|important|(?:a bit )?about me)\b[\s,:;.–-]*",
    re.IGNORECASE,
)
_TAIL = re.compile(r"(?:,?\s(?:btw|by the way|fyi|lol|haha+|thanks?(?: you)?|though|tho|actually|too|as well|you know|ok(?:ay)?|please))+[\s!.]*$|[\s😀😊😂🎉😭:)(]+$", re.IGNORECASE)  # fmt: skip
_ASKING = re.compile(
    r"^(?:what|which|who|whom|whose|where|when(?!ever)|why|how|is|are|am|was|were|do|does|did|can|could|would|will|should|shall|may|might|have you|has|had|any|tell me|wonder)\b|\b(?:wonder(?:ing)?|"
    r"guess what|do you know|right|isn['’]t it)$",
    re.IGNORECASE,
)
_HYPOTHETICAL = re.compile(
    r"\b(?:if|suppose|supposing|imagine|imagining|hypothetically|unless|in case|let['’]?s say|say i|were i|maybe|perhaps|might|(?-i:may)|possibly|probably|could(?:n['’]t)?|would(?!\s(?:like|prefer|rather))|should(?=\si\b)|wish(?:ing|es)?|hope|hopefully|"
    r"someday|some day|one day|thinking (?:about|of)|considering|not sure|unsure|undecided|wondering|dream(?:t|ed|ing)?|if only|i guess|as if|tempted|almost|nearly|apparently|feel like|i['’]d love to|would love|can['’]t decide|whether|supposed to)\b",
    re.IGNORECASE,
)
_MOMENTARY = re.compile(r"\b(?:today|tonight|right now|at the moment|just now|this (?:time|morning|afternoon|evening|week|one)|for now|temporarily|currently (?:trying|stuck|looking)|tomorrow|yesterday|last night|so (?:tired|happy|sad|angry|excited|bored|stressed)|again)\b", re.IGNORECASE)  # fmt: skip
_FORMERLY = re.compile(r"\b(?:used to|formerly|previously|back then|back when|as a (?:kid|child|teenager)|when i was|once|in the past|years ago|growing up|before)\b", re.IGNORECASE)  # fmt: skip

_ADV = r"(?:(?:also|really|still|just|now|currently|always|usually|mostly|mainly|generally|typically|primarily|often|absolutely|particularly|especially|personally|strongly|actually|recently|finally|officially|already|definitely|only|never|normally|strictly|highly|deeply|severely|very|quite|pretty|totally|truly|exclusively|rarely|simply|both|happily|deathly)\s){0,3}"
_I = rf"(?:i\s{_ADV})"
_IM = rf"(?:i['’]m|i\sam|im)\s{_ADV}"
_IVE = rf"(?:i['’]ve|i\shave|ive)\s{_ADV}"
_NOT_VAGUE = r"(?!(?:it|that|this|these|those|you|your|him|her|them|the\s(?:idea|way|ones?|answer|result|code|new|last|first|second|above|following)|how|what|when|where|why|to\s(?:know|ask|say|see|thank|hear|understand|think)|so|too|well|all|everything|nothing|something|anything|one|both|here|there|my\s(?:job|life)\s(?:right|today)|being\shere)\b)"
_OBJECT = _NOT_VAGUE + r"[^;!?]{2,80}"
_PLACE = r"(?P<o>(?!(?:a\s(?:hurry|rush|mess|bit|way|world|simulation)|the\s(?:moment|past|future|middle|same|next|present|zone|right)|this|that|here|there|it|trouble|love|with|for)\b)[^;!?,]{2,40}(?:,\s(?-i:[A-Z])[\w .]{1,24})?)"
_NAME = r"(?P<o>(?-i:[A-Z])[\w'’\-]{0,20}(?:\s(?-i:[A-Z])[\w'’\-.]{0,20}){0,3})"
_JOBS = (
    r"(?:engineer|developer|programmer|teacher|professor|lecturer|doctor|physician|nurse|lawyer|attorney|designer|manager|student|analyst|scientist|researcher|architect|accountant|writer|author|journalist|editor|"
    r"salesperson|founder|co-?founder|freelancer|director|consultant|chef|cook|driver|pilot|photographer|artist|musician|translator|intern|lead|admin(?:istrator)?|dba|sre|devops|pm|ceo|cto|cfo|coo|vp|head\sof\s\w+|owner|"
    r"pharmacist|dentist|vet|veterinarian|therapist|psychologist|electrician|plumber|carpenter|mechanic|farmer|soldier|policeman|police\sofficer|firefighter|librarian|actor|actress|singer|barista|bartender|tester|operator|"
    r"coach|trainer|tutor|recruiter|marketer|statistician|economist|physicist|chemist|biologist|mathematician|historian|paramedic|surgeon|contractor|entrepreneur|retiree|postdoc|phd\s(?:student|candidate)|undergrad(?:uate)?|freshman|sophomore|"
    r"stay-at-home\s(?:mom|dad|mum|parent)|single\s(?:mom|dad|mum|parent)|team\slead|tech\slead|paralegal|clerk|secretary|assistant|technician|potter|illustrator|baker)"
)
_FAMILY = (
    r"(?:older\s|younger\s|little\s|big\s|eldest\s|youngest\s|oldest\s|twin\s|step)?(?:daughter|son|wife|husband|spouse|partner|fianc[eé]e?|girlfriend|boyfriend|mother|mom|mum|father|dad|parents|brother|sister|siblings?|grandmother|grandfather|grandma|grandpa|kids?|children|child|baby|"
    r"twins|(?:golden\s|border\s|german\s|french\s)?(?:retriever|labrador|lab|poodle|corgi|beagle|husky|tabby|siamese|terrier|bulldog|dachshund|collie|shepherd|pug)|dog|cat|puppy|kitten|parrot|hamster|rabbit|horse|turtle|pet|nephew|niece|cousin|uncle|aunt|roommate|flatmate|boss|manager|supervisor|advisor|mentor|family)s?"
)
_FIELDS = (
    r"(?:(?:full|first|last|real|middle|family|user)\s?)?name|nickname|birthday|birth\sdate|date\sof\sbirth|age|height|weight|shoe\ssize|blood\stype|star\ssign|zodiac\ssign|job|job\stitle|title|role|position|profession|occupation|employer|company|team|department|"
    r"project|major|degree|school|university|alma\smater|hometown|home\stown|home|nationality|native\slanguage|first\slanguage|mother\stongue|email(?:\saddress)?|phone(?:\snumber)?|address|time\s?zone|pronouns(?:\s)?|hobby|hobbies|laptop|computer|phone|editor|ide|shell|os|operating\ssystem|"
    r"browser|keyboard|tech\sstack|stack|main\slanguage|(?:primary|main|default|daily)\s[\w\s]{2,30}|car|bike|religion|diet|goal|motto|website|blog|github(?:\shandle)?|handle|username|working\shours|work\shours"
)
_LATIN = r"(?-i:[A-Z0-9])[\w.+#/\-]*"
_TECH = r"(?:vim|neovim|emacs|vscode|vs\scode|git|python|rust|go|golang|java|kotlin|scala|ruby|typescript|javascript|postgres(?:ql)?|mysql|sqlite|redis|docker|kubernetes|linux|macos|windows|ubuntu|arch|debian|fedora|zsh|fish|bash|tmux|react|vue|svelte|django|flask|fastapi|node|deno|aws|gcp|azure|terraform|ansible|notion|obsidian|slack|excel|figma|photoshop|c\+\+|c#|c|r|sql|haskell|elixir|clojure|swift|perl|php|lua|julia|matlab|latex|dvorak|colemak|jetbrains|pycharm|intellij|nix|nixos|pandas|pytorch|tensorflow)"
_WEEKLY = r"(?:every|each)\s(?:other\s|single\s|\d+\s|two\s|few\s)?(?:day|morning|afternoon|evening|night|week|month|year|weekday|weekend|summer|winter|spring|autumn|(?:mon|tues|wednes|thurs|fri|satur|sun)day)s?(?:\s(?:morning|afternoon|evening|night)|\sat\s[\d:apm\s.]{1,8})?(?:\s(?:before|after)\s\w+)?|on\s(?:mon|tues|wednes|thurs|fri|satur|sun)days|daily|weekly|(?:once|twice|three\stimes|\d+\stimes)\sa\s(?:day|week|month|year)|most\s(?:days|mornings|evenings|weekends)|at\sweekends|on\sweekends|in\sthe\s(?:mornings?|evenings?)"


def _rule(pattern: str, priority: int, kind: Kind = "persona") -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), kind, priority)


_PERSONA = (
    _rule(rf"{_IM}(?:severely\s|highly\s|deathly\s|mildly\s)?allergic\sto\s(?P<o>(?!mondays?\b|work\b|meetings?\b|mornings?\b|bullshit\b|bad\b){_OBJECT})$", ALLERGY),
    _rule(rf"{_I}(?:have|got|suffer\sfrom)\s(?:an?\s)?(?:\w+\s){{0,3}}(?:allergy|allergies|intolerance)\b[^;!?]{{0,40}}$", ALLERGY),
    _rule(rf"{_IM}(?:a\s)?(?:strict\s)?(?:vegan|vegetarian|pescatarian|lactose[-\s]intolerant|gluten[-\s]intolerant|celiac|coeliac|diabetic|color-?blind|colour-?blind|left-handed|right-handed|asthmatic|dyslexic|kosher|halal|keto|teetotal(?:er)?|hard\sof\shearing|deaf|blind)\b[^;!?]{{0,40}}$", HEALTH),
    _rule(rf"{_I}(?:have|suffer\sfrom|was\sdiagnosed\swith)\s(?:type\s\d\s)?(?:a\s)?(?:chronic\s|mild\s|severe\s)?(?:diabetes|asthma|celiac(?:\sdisease)?|migraines?|epilepsy|adhd|autism|dyslexia|arthritis|anemia|hypertension|high\sblood\spressure|insomnia|depression|anxiety|eczema|gout|ibs|tinnitus|a\sbad\sback)\b[^;!?]{{0,30}}$", HEALTH),
    _rule(rf"(?:my\sname\sis|my\sname['’]s|i\sam\scalled|i['’]m\scalled|i\sgo\sby|people\scall\sme|everyone\scalls\sme|my\sfriends\scall\sme|friends\scall\sme)\s{_NAME}$", IDENTITY),
    _rule(rf"{_I}(?:live|reside|am\sliving|am\sbased)\s(?:in|at|near|on|outside|just\soutside|with)\s{_PLACE}$", IDENTITY),
    _rule(rf"(?:{_IM}|we\sare\s|we['’]re\s|we\s)(?:(?:now\s)?(?:living|based|located|settled)|live)\s(?:in|at|near|outside)\s{_PLACE}$", IDENTITY),
    _rule(rf"(?:{_I}|{_IVE}|we\s|we['’]ve\s)(?:moved|relocated|emigrated|moved\sback)\s(?:back\s|over\s|out\s|here\s)?(?:from\s[^;!?]{{2,30}}?\s)?(?:to|into)\s(?!(?:a\snew\s(?:desk|role)|the\snext)\b){_PLACE}$", IDENTITY),
    _rule(rf"i['’]m\s(?!(?-i:Sorry|Done|Back|Here|Fine|Good|Great|Tired|Happy|Sad|Busy|Late|Not|So|Just|On|In|At|Ok|Okay|Sure|Ready|Very|Really|Glad|Using|Trying|Going|Looking|Learning)\b)(?P<o>(?-i:[A-Z][a-z]+(?:\s[A-Z][a-z]+)?))(?:,\s(?:an?|the)\s[^;!?]{{0,40}}{_JOBS}\b[^;!?]{{0,40}})?$", IDENTITY),
    _rule(rf"{_IVE}been\s(?:learning|studying|playing|practi[cs]ing|using|living\sin|married|(?:an?\s)?(?:vegan|vegetarian|{_JOBS})|working\s(?:at|as|for|in))\s?(?P<o>(?!(?:it|this|that|the\s(?:code|same))\b)[^;!?]{{0,50}}?)\s?\b(?:for|since)\s[^;!?]{{2,30}}$", IDENTITY),
    _rule(rf"{_I}(?:drive|own|ride|wear)\s(?:an?\s|my\s|contact\s|glasses)[^;!?]{{0,40}}$", PREFERENCE),
    _rule(rf"i\snever\s(?:eat|drink|smoke|use|watch|drive|wear|buy|cook|skip|work\son)\s{_OBJECT}$", PREFERENCE),
    _rule(rf"(?:{_IM}(?:originally\s)?from(?!\stime|\sthe\s(?:future|past))|{_I}(?:come|hail)\sfrom(?!\stime\sto\stime)|i\swas\sborn\s(?:and\sraised\s)?(?:in|on)|i\sgrew\sup\sin)\s(?P<o>{_OBJECT})$", IDENTITY),
    _rule(rf"(?:{_IM}|{_I}work\sas\s|{_I}became\s|{_IM}working\sas\s)(?:an?\s|the\s)?(?P<o>(?:[\w\-/&+#]+\s){{0,4}}{_JOBS}\b(?:\s(?:at|for|in|on|with|from|and|of)\s[^;!?]{{2,50}}|\sby\s\w+)?)$", IDENTITY),
    _rule(rf"(?:{_I}(?:work|teach|study|volunteer|intern)|{_IM}(?:working|studying|interning|employed))\s(?:remotely(?:\sfrom\s[^;!?]{{2,24}}?)?\s|part-time\s|full-time\s)?(?:as|at|for|in|on\sthe|with|\w+\sat)\s(?P<o>(?!(?:it|this|that|the\s(?:moment|same|bug|issue)|a\s(?:bug|fix|problem|company$))\b)[^;!?]{{2,60}})$", IDENTITY),
    _rule(rf"(?:{_I}|{_IVE})(?:joined|started\s(?:working\s)?(?:at|as)|got\sa\sjob\s(?:at|as)|got\spromoted\sto|was\spromoted\sto|been\spromoted\sto|(?:lead|manage|run|own)(?=\s(?:an?|the|my)\s)|founded|graduated\sfrom|majored\sin|major\sin|have\sa\s(?:degree|phd|masters?|bachelors?)\sin|study)\s(?P<o>(?!(?:the\s(?:code|script|command|test|tests|query)|it|this|that|into|out|late|early)\b)[^;!?]{{2,60}})$", IDENTITY),
    _rule(rf"my\s(?:all-time\s)?(?:(?:preferred|favou?rite|go-to)\s[\w\s]{{2,30}}|hobby|hobbies)\s(?:is|are)\s(?P<o>{_OBJECT})$", PREFERENCE),
    _rule(rf"my\s(?:{_FIELDS})\s(?:is|are|['’]s|will\sbe)\s(?:now\s|currently\s|always\s)?(?P<o>(?!(?:not|broken|slow|down|wrong|missing|dead|so|too|very|really|acting|crashing|failing|late|sick|being|going|getting|driving|killing)\b)[^;!?]{{1,80}})$", IDENTITY),
    _rule(rf"{_IM}(?P<o>\d{{1,3}}(?:\syears\sold)?|(?:single|married|divorced|engaged|widowed|retired|unemployed|self-employed)(?:\s(?:to|with|since)\s[^;!?]{{2,30}})?|(?:an?\s)?(?:introvert(?:ed)?|extrovert(?:ed)?|night\sowl|early\sbird|morning\sperson|perfectionist|minimalist|atheist|christian|muslim|buddhist|jewish|catholic))$", IDENTITY),
    _rule(rf"{_IM}(?:an?\s)?(?P<o>(?:native\s)?(?-i:[A-Z])[a-z]+(?:ish|ese|an|ian|ean|ch|sh)(?:\scitizen|\sspeaker)?)$", IDENTITY),
    _rule(rf"(?:my|our)\s(?:\d+[-\s]year[-\s]old\s)?{_FAMILY}['’]?s?(?:,?\s(?-i:[A-Z])[\w]+,?)?\s(?:name\sis|names\sare|is\scalled|are\scalled|is\snamed|is\sallergic\sto|lives?\sin|works?\s(?:at|as|for|in)|is\s(?:an?\s)(?:\w+\s){{0,3}}(?:{_JOBS}|retriever|terrier|poodle|beagle|corgi|labrador|tabby|siamese)|is\s\d{{1,2}}|turned\s\d{{1,2}}|loves?|likes?|hates?|speaks?|goes\sto|is\s(?-i:[A-Z])[a-z]+)\b[^;!?]{{0,60}}$", FAMILY),
    _rule(rf"(?:{_I}|{_IVE}|we\s|we['’]ve\s)(?:have|adopted|got|own)\s(?:a|an|one|two|three|four|five|\d)\s(?:[\w\-]+\s){{0,3}}{_FAMILY}\b[^;!?]{{0,60}}$", FAMILY),
    _rule(rf"(?:{_I}|{_IVE})(?:no\slonger|stopped|quit|gave\sup|given\sup|don['’]t)\s(?P<o>(?!(?:it|that|this|know|think|have\stime|care|understand|want|need|see|get|mind|believe|feel|remember|agree|like)\b)[^;!?]{{2,60}}?)(?:\sany\s?more|\sany\slonger)$", CHANGE),
    _rule(rf"{_IM}not\s(?P<o>(?!(?:sure|it|that|this)\b)[^;!?]{{2,40}}?)\s(?:any\s?more|any\slonger)$", CHANGE),
    _rule(rf"(?:{_I}|{_IVE}|{_IM})(?:no\slonger|quit|stopped|gave\sup|given\sup|done\swith)\s(?P<o>(?!(?:it|that|this|know|think|care|understand|because|the\s(?:app|program|game|process|container|server))\b)[^;!?]{{3,60}})$", CHANGE),
    _rule(rf"(?:{_I}|{_IVE}|we\s{_ADV}|we['’]ve\s{_ADV})(?:switched|migrated|converted|transitioned|changed|upgraded)\s(?:over\s|my\s\w+\s)?(?:from\s[^;!?]{{2,30}}?\s)?to\s(?P<o>{_OBJECT})$", CHANGE),
    _rule(rf"(?:{_I}|{_IVE}|we\s{_ADV}|we['’]ve\s{_ADV})(?:replaced|swapped|ditched|dropped)\s[^;!?]{{2,30}}?\s(?:with|for|in\sfavou?r\sof|to)\s(?P<o>{_OBJECT})$", CHANGE),
    _rule(rf"(?:{_I}(?:do\snot|don['’]t|dont|can['’]t|cannot)\s(?:really\s|usually\s)?(?:like|eat|drink|enjoy|smoke|drive|cook|stand|tolerate|use|watch|wear|own|believe\sin)|{_I}(?:love|like|enjoy|prefer|hate|dislike|adore|loathe|detest|despise|favou?r|avoid|value|cherish)|i['’]d\s(?:rather|prefer)|i\swould\s(?:rather|prefer))\s{_OBJECT}$", PREFERENCE),
    _rule(rf"(?:{_IM}(?:(?:afraid|scared|terrified)\sof(?!\s\w+ing)|fond\sof|into|a\s(?:big\s|huge\s)?(?:fan|lover)\sof|obsessed\swith|passionate\sabout|good\sat|fluent\sin|proficient\sin|skilled\sin|experienced\s(?:in|with)|learning|bad\sat|addicted\sto))\s(?!(?:it|that|this|you|losing|missing|failing|being\slate|how|what)\b){_OBJECT}$", PREFERENCE),
    _rule(rf"{_I}(?:speak|know|can\sspeak|am\sable\sto\sspeak)\s(?:a\slittle\s|some\s|fluent\s|basic\s|native\s)?(?:(?-i:[A-Z])[a-z]+(?:ese|ish|ian|man|ch|ic|in|di|an|ean)|Urdu|Dutch|Greek|Thai|Tagalog|Swahili)\b[^;!?]{{0,40}}$", PREFERENCE),
    _rule(rf"{_I}(?:can|know\show\sto)\s(?:play\sthe|play\schess|juggle|ski|swim|surf|type\s\d+|code\sin|program\sin|bake|sail|drive\sa)\b[^;!?]{{0,40}}$", PREFERENCE),
    _rule(rf"{_I}(?:play)\s(?:the\s)?(?:piano|guitar|violin|cello|drums|bass|flute|saxophone|trumpet|chess|tennis|soccer|football|basketball|badminton|golf|hockey|volleyball|go|bridge|squash)\b[^;!?]{{0,40}}$", HABIT),
    _rule(rf"(?:{_I}|we\s{_ADV}|our\steam\s|my\steam\s|our\scompany\s|my\scompany\s)(?:uses?|codes?\sin|programs?\sin|writes?(?=\s(?:(?:mostly|mainly)\s)?{_TECH}\b)|works?\s(?:mostly\s|mainly\s)?in|develops?\s(?:on|in)|deploys?\s(?:on|to|with)|runs?(?=\s{_TECH}\b))\s(?:mostly\s|mainly\s|only\s)?(?=[^;!?]{{0,14}}\b{_TECH}(?![\w])|(?:an?\s|the\s|my\s)?(?-i:[A-Z]))(?!(?:it|this|that|the\s(?:same|following)|your|these)\b)[^;!?]{{1,60}}$", TOOLS),
    _rule(rf"{_IM}(?:using|on|running)\s(?:a\s|an\s|the\s)?(?:[\w.]+\s){{0,2}}{_TECH}\b(?:\s[\d.]+)?(?:\s(?:as\smy|for\smy|on\smy|at\swork|daily|these\sdays)[^;!?]{{0,30}})?$", TOOLS),
    _rule(rf"(?:{_WEEKLY}),?\s(?:i|we)\s{_ADV}(?:go\s|do\s|have\s)?(?!(?:am|was|feel|felt|get\s(?:this|an\serror)|got|see|saw|had|have\sto|will|went|need|try|think|want|did|forget|[a-z]+ed)\b)[a-z]+\b[^;!?]{{0,60}}$", HABIT),
    _rule(rf"{_I}(?!(?:am|was|will|feel|felt|get\s(?:this|an\serror)|got|saw|had|need|went|did|think|want|have\sto|see|forget|say|ask|tell|run\sinto|told|asked|said|did|tried|made|[a-z]+ed)\b)[a-z]+\s[^;!?]{{0,50}}?(?:{_WEEKLY})(?:\s[^;!?]{{0,30}})?$", HABIT),
    _rule(rf"{_I[:-1]}(?:usually|always|typically|normally|generally)\s(?!(?:get|got|feel|forget|fail|fails|wonder|wanted|thought|think|happy|had|end|see|want|try|miss|lose|have)\b)[a-z]+\s[^;!?]{{2,60}})$", HABIT),
)  # fmt: skip

_LASTING = re.compile(
    r"\b(?:from now on|from here on|going forward|from today(?: on)?|in (?:the )?future|henceforth|always|never|every time|each time|whenever|when(?:ever)? i (?:ask|say|send|write|paste|share|give)|any ?time|by default|permanently|at all times|in (?:all|every) (?:your )?(?:repl(?:y|ies)|answers?|responses?|messages?)|until i say|for all (?:future )?)\b|^(?:please )?stop \w+ing\b",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"^(?:(?:from now on|from here on|going forward|in (?:the )?future|henceforth|from today(?: on)?|by default|as a rule|(?:whenever|when|every time|each time|any ?time) (?:i|we|you (?:write|answer|reply|generate|respond|show|give|explain|suggest|make|send|run|use|edit|change|review|commit))\b[^,]{2,60})\s?,?\s)?(?:(?:i(?:['’]d| would) (?:like|want|prefer) (?:you|it if you)(?: to)?|i want you to|i need you to|"
    r"you (?:should|must|need to|have to|can)|please|kindly|make sure(?: to| you| that you)?|be sure to|remember to|(?:can|could|would|will) you(?: please)?|just)\s){0,3}(?:always |never |only |also |ever |at all times )*"
    r"(?:use|answer|reply|respond|write|call|address|speak|talk|keep|give|include|add|show|format|start|begin|end|avoid|don['’]t|do not|never|put|cite|explain|ask|tell|check|run|remind|send|be|stick|limit|prefer|provide|skip|omit|refer|convert|translate|wrap|return|list|mention|quote|prefix|sign|default|follow|assume|confirm|summari[sz]e|stop|present|suggest|double-check|test|review|mark|comment|document|indent|spell)\b",
    re.IGNORECASE,
)
_STYLE = re.compile(
    r"^(?:please\s)?(?:keep (?:your |the |all )?(?:answers?|repl(?:y|ies)|responses?|messages?|explanations?|code|comments?|summaries)\b[^?]{2,60}|(?:please\s)?(?:don['’]t|do not|avoid|stop|no)(?: ever)? (?:us(?:e|ing)|add(?:ing)?|includ(?:e|ing)|apologi[sz](?:e|ing)|say(?:ing)?|writ(?:e|ing)|giv(?:e|ing) me|start(?:ing)?|call(?:ing)? me|put(?:ting)?)\b"
    r"(?!\s(?:this|that|the|it|a\s(?:loop|library|class|function)|too much)\b)[^?]{2,60}|(?:you can |please |just )?call me (?!(?:back|when|if|later|at|on|in|tomorrow|tonight|today|crazy|old|a|an|the|after|before|maybe)\b)[\w'’\- ]{1,24}|(?:refer to|address) me as [\w'’\- ]{1,30}|no (?:more )?(?:emojis?|markdown|bullet points|apologies|jargon|tables|headers|small talk|fluff|preamble|disclaimers|filler)(?: in [\w ]{2,30})?|i(?:['’]d)? prefer (?:your |if you |short |concise |brief |detailed )(?:[^?]{0,20})?(?:answers?|repl(?:y|ies)|responses?|explanations?|code|use|write|keep)[^?]{0,40}|"
    r"(?:please )?(?:answer|reply|respond|write|speak|talk)(?: to me| back)? (?:only )?in (?:English|Chinese|German|French|Spanish|Japanese|Korean|Italian|Portuguese|Russian|bullet points|plain English|British English|American English|metric))$",
    re.IGNORECASE,
)
_ONE_OFF = re.compile(r"\b(?:this time|this (?:one|once|text|code|file|sentence|paragraph|email|function|essay|question|task|article|message|document)|for now|just this|these|the following|below|above|today|tonight|right now|tomorrow|next \w+day|yesterday)\b", re.IGNORECASE)  # fmt: skip
_NOT_ORDER = re.compile(r"^(?:i\s(?!want you|would like|need you|['’]?d|prefer)|i['’](?:m|ve|ll)|we\s|he\s|she\s|they\s|it\s|the\s(?!code)|my\s|our\s|this\s|that\s|never mind|you (?:always|never)|always (?:wanted|been|loved))|\bstop (?:worrying|it|that)\b|\bgive up\b|\bbe yourself\b|\bsay never\b|\bfollow your\b|\bhesitate\b|\blook back\b|\bdon['’]t (?:worry|know|you think|forget to sub)\b", re.IGNORECASE)  # fmt: skip

_NOUNS = (
    r"(?:appointment|meeting|interview|exam|test|flight|train|wedding|surgery|operation|check-?up|party|conference|demo|presentation|deadline|launch|release|call|review|standup|stand-up|sync|retro(?:spective)?|trip|vacation|holiday|graduation|concert|game|match|race|marathon|"
    r"workshop|class|lecture|talk|hearing|move|moving day|lease|contract|rent|report|paper|thesis|defen[cs]e|proposal|assignment|homework|project|visa|passport|reservation|booking|dinner|lunch|birthday(?: party)?|anniversary|inspection|delivery|migration|cutover|go-live|beta|offsite|onsite|reunion|funeral|baby shower|ceremony|recital|play|show|festival|training|webinar|kick-?off|audit|closing|viewing|session|scan|mri|therapy|physical|haircut|date|election|due date|invoice|payment|tax(?:es| return)?|submission|draft|sprint|course)"
)
_VERBS = (
    r"(?:go(?:ing)?|com(?:e|ing)|fly(?:ing)?|travel(?:l?ing)?|driv(?:e|ing)|leav(?:e|ing)|meet(?:ing)?|visit(?:ing)?|attend(?:ing)?|start(?:ing)?|join(?:ing)?|mov(?:e|ing)|submit(?:ting)?|present(?:ing)?|giv(?:e|ing) a (?:talk|presentation|speech)|launch(?:ing)?|releas(?:e|ing)|ship(?:ping)?|deploy(?:ing)?|buy(?:ing)?|sell(?:ing)?|sign(?:ing)?|run(?:ning)? (?:a|the) \w+|tak(?:e|ing) (?:the|my|an?|our|\w+ (?:days|weeks) off)[^.;!?]{0,20}|"
    r"get(?:ting)? (?:married|engaged|divorced|surgery|my|a|the|our)[^.;!?]{0,20}|hav(?:e|ing) (?:a|an|my|our|the|dinner|lunch|surgery|another|two|three)[^.;!?]{0,40}|expect(?:ing)? (?:a|our|twins)|graduat(?:e|ing)|retir(?:e|ing)|hik(?:e|ing)|camp(?:ing)?|host(?:ing)?|interview(?:ing)?|pick(?:ing)? up|return(?:ing)?|renew(?:ing)?|fil(?:e|ing)|finish(?:ing)?|deliver(?:ing)?|migrat(?:e|ing)|switch(?:ing)?|book(?:ing)?|see(?:ing)? (?:a|the|my) (?:doctor|dentist|therapist|lawyer|movie|play|show)|speak(?:ing)? at|compet(?:e|ing)|defend(?:ing)?|celebrat(?:e|ing)|publish(?:ing)?|demo(?:ing)?|hand(?:ing)? in|turn(?:ing)? in|pay(?:ing)?|quit(?:ting)?|(?:be )?(?:in (?=(?-i:[A-Z]))|out of (?:the )?(?:office|town|country)|away|on (?:leave|vacation|holiday|a (?:business )?trip)))"
)
_PAST = (
    r"(?:got back|came back|arrived|went|flew|travel+ed|drove|left|met|visited|attended|started|joined|moved|submitted|presented|gave (?:a|the|my)|launched|released|shipped|deployed|bought|sold|signed|ran (?:a|the|my)|took (?:the|my|a)|got (?:married|engaged|divorced|promoted|fired|hired|laid off|accepted|rejected|surgery|the|my|a|an|our)|had (?:a|an|my|our|the|surgery|dinner with|lunch with)|graduated|"
    r"retired|hiked|camped|hosted|interviewed|picked up|returned|renewed|postponed|delayed|pushed|brought forward|moved up|filed|finished|completed|delivered|migrated|switched|booked|saw (?:a|the|my)|spoke (?:at|with|to)|won|lost|passed|failed|broke|quit|resigned|adopted|celebrated|published|paid|received|ordered|closed|merged|fixed|rolled back|defended|applied|enrolled|registered|crashed|was (?:born|hospitali[sz]ed|promoted|accepted|hired|laid off|diagnosed|admitted|awarded)|were (?:accepted|evacuated)|welcomed|gave birth|donated|cancel+ed|rescheduled|fell|sprained|injured|agreed|hired|rented|leased|proposed|ran)"
)
_WE = r"(?:i|we|my (?:wife|husband|partner|family|team|boss|son|daughter|mom|mum|dad|brother|sister|parents|girlfriend|boyfriend|company|manager|friend \w+|cat|dog)(?: and i)?|our team|the team|our company|our family)"
_AHEAD = rf"(?:{_WE}(?:['’]m|['’]re|['’]ll| am| are| is| will(?: be)?| plan to| plan on| planned to| have to| need to| must| has to| got to| have got to)\s(?:going to\s|gonna\s|planning to\s|scheduled to\s|due to\s|also\s|finally\s|now\s|be\s|about to\s|set to\s|traveling to\s|off to\s){{0,2}}{_VERBS}\b)"
_EVENT = re.compile(
    rf"^(?:{_AHEAD}|{_WE} (?:have|has|['’]ve got|have got|got|booked|scheduled|arranged|planned|set up|signed up for|reserved|bought|ordered|registered for) (?:a |an |the |my |our |another |two |three |tickets |to )?[^.;!?]{{0,40}}?\b(?:{_NOUNS}|tickets|trip|room|flights?|meetings?|interviews?)s?\b"
    rf"|{_WE} (?:just |finally |also |already |officially |successfully )*{_PAST}\b(?! (?:it|that) (?:wrong|again))|(?!(?:i|we|you|he|she|they|it)\b)(?:my|our|the|a|an|\w+ team['’]?s?)?\s?(?:[\w\-’']+ ){{0,4}}?{_NOUNS}s? (?:is|was|has been|got|will be|are|were|starts?|ends?|begins?|moved|takes place|expires?|['’]s)\b[^?]{{0,80}}|(?:my|our|the)\s(?:[\w\-’']+\s){{1,3}}?(?:launches|ships|goes live|opens|closes|leaves|departs|arrives|lands|expires|releases|ends|starts|begins)\b[^?]{{0,60}})",
    re.IGNORECASE,
)
_NOUN_ONLY = re.compile(rf"^(?!(?:i|we|you|he|she|they|it)\b)(?:(?:my|our|the|a|an)\s)?(?:[\w\-’'#]+\s){{0,4}}?{_NOUNS}s?(?:\s(?:with|at|for|in|to|of|about)\s[^.;!?]{{1,40}})?[\s:,]*$", re.IGNORECASE)  # fmt: skip
_DECIDED = re.compile(
    rf"^(?:{_WE}|the board|management|everyone|the committee)(?:['’]ve| have| has)? (?:just |finally |already |all |both |officially |unanimously |ultimately |eventually )*(?:decided (?:to|on|against|not to|that|we)|agreed (?:to|on|that)|settled on|chose(?:n)?(?: to)?|picked|opted (?:for|to)|committed to|went with|(?:am|are) going with|signed off on|voted (?:to|for))\s[^?]{{3,}}$",
    re.IGNORECASE,
)
_DONE = re.compile(
    r"^(?:i|we)(?:['’]ve| have)? (?:just |finally |already |officially )*(?:bought|signed|passed|got (?:married|engaged|promoted|hired|fired|laid off|accepted|the job|the offer|a (?:new|dog|cat|puppy|kitten|promotion|raise|job))|graduated|adopted|launched|shipped|submitted|quit my|resigned|retired|sold|closed on|won (?:the|a|first|second|our)|broke (?:my|a)|enrolled|published|booked|received an? (?:offer|award)|been (?:accepted|promoted|hired|laid off))\b[^?]{0,80}$",
    re.IGNORECASE,
)
_DUE = re.compile(r"\b(?:due|deadline|must be (?:in|submitted|done|finished)|expires?|need(?:s)? to (?:be )?(?:submit(?:ted)?|finish(?:ed)?|deliver(?:ed)?|hand(?:ed)? in|ship(?:ped)?|pay|paid|done)|have to (?:submit|finish|deliver|hand in|ship|pay))\b", re.IGNORECASE)  # fmt: skip
_TRIVIAL = re.compile(r"\b(?:see|do|try|get|make|fix|finish|finished|fixed|buy|start|started|visit|take|send|tried|did|saw) (?:it|them|that|this)\b|^(?:you|he|she|they|it|this|that|there|the (?:weather|movie|news|code|error|app|test|build|server|page)|please|can|could|help|let['’]s|schedule|book|set|add|create|move|cancel|remind|plan|draft|send|check|make|put|order|call(?! with)|fix|run|translate|summari[sz]e|explain|rewrite|generate|look|search|buy|reserve|list|write|tell|show|give|find|what|how|thanks|good|happy|see you|talk)\b|\b(?:went (?:badly|wrong|well)$|had (?:a|the) (?:long|bad|good|great|rough|terrible|lovely|nice|hard|tough|awful|crazy|busy|fun|blast|headache|nightmare|dream|feeling|lot|hard time|great time|thought|idea|question)\b|\bstarted (?:crying|feeling|laughing|to feel|thinking|wondering)\b|\b(?:talk|chat|speak) (?:to|with) you\b|got (?:a|an|the) (?:chance|error|headache|feeling|bug|warning|message)|ran (?:the|a) (?:code|script|command|test|query|tests)|had (?:a|the) (?:same|similar|following) )", re.IGNORECASE)  # fmt: skip


def candidates(sentence: Sentence, at: datetime) -> Iterator[Candidate]:
    """What a sentence says, in its order."""
    clauses = corrected([c for c in map(_clean, _CLAUSES.split(sentence.text)) if c], at, object_of)
    clauses = _joined(clauses, at)
    for number, clause in enumerate(clauses):
        if len(clause) > MAX_CLAUSE_CHARS:
            continue
        asks = sentence.asks and number == len(clauses) - 1
        found = _instruction(clause, asks=asks)
        if (
            found is None
            and not asks
            and not _ASKING.search(clause)
            and not _HYPOTHETICAL.search(sentence.text)
        ):
            found = _persona(clause, at) or _episodic(clause, at)
        if found is not None:
            yield found


def object_of(clause: str) -> re.Match[str] | None:
    """The match of a persona rule whose group ``o`` a correction may replace."""
    for rule in _PERSONA:
        found = rule.pattern.match(clause)
        if found and "o" in rule.pattern.groupindex and found["o"]:
            return found
    return None


def _clean(clause: str) -> str:
    clause = clause.strip(" \t,;:-–—*_()")
    while found := _FILLER.match(clause):
        if found.end() == len(clause):
            return ""
        clause = clause[found.end() :]
    return _TAIL.sub("", clause).strip(" ,;:-–—")


def _joined(clauses: list[str], at: datetime) -> list[str]:
    """A clause of a date or a condition alone ("From now on, …", "Next Tuesday, …") is told together with the next."""
    joined: list[str] = []
    pending = ""
    for clause in clauses:
        alone = re.fullmatch(r"(?:from now on|going forward|in (?:the )?future|by default|(?:whenever|when(?=\si\s(?:ask|say|send|paste|share))|when(?=\syou\s(?:write|answer|reply|generate|respond|show|give|explain|suggest|review))|every time|each time|any ?time)\s[^,]{2,80})", clause, re.IGNORECASE)  # fmt: skip
        if alone or (len(clause) <= MAX_CLAUSE_CHARS and resolve(clause, at) and not _rest(clause, at)):
            pending += clause + ", "
        else:
            joined.append(pending + clause)
            pending = ""
    return joined + ([pending.removesuffix(", ")] if pending else [])


def _rest(clause: str, at: datetime) -> str:
    parts, last = [], 0
    for found in resolve(clause, at):
        parts.append(clause[last : found.span[0]])
        last = found.span[1]
    rest = " ".join([*parts, clause[last:]])
    return re.sub(r"\s{2,}", " ", re.sub(r"\b(?:on|at|by|from|until|till)\s*$", "", rest.strip(" ,"))).strip(
        " ,"
    )


_POINTING = re.compile(r"\b(?:this|these|those|them|him|its|their|his|it|there)\b", re.IGNORECASE)
"""Who reads a memory by itself cannot know what is meant."""


def _instruction(clause: str, *, asks: bool) -> Candidate | None:
    if _NOT_ORDER.search(clause):
        return None
    lasting = _LASTING.search(clause)
    if _ONE_OFF.search(clause) and not re.match(r"from (?:now|today)|going forward", clause, re.IGNORECASE):
        return None
    if re.search(r"\b(?:if|suppose|imagine|maybe|perhaps|wish)\b", clause, re.IGNORECASE) and not lasting:
        return None
    style = re.sub(
        r"^(?:i['’]d|i would) (?:like|prefer) (?:it if )?you (?:to )?|^i want you to |^you should ",
        "",
        clause,
        flags=re.IGNORECASE,
    )
    if (lasting and _ORDER.match(clause)) or (not asks and _STYLE.match(style)):
        return Candidate(clause, "instruction", INSTRUCTION)
    return None


def _persona(clause: str, at: datetime) -> Candidate | None:
    if _FORMERLY.search(clause) and not re.search(
        r"\b(?:no longer|any ?more|switched|quit|stopped)\b", clause, re.IGNORECASE
    ):
        return None
    changes = re.search(r"\b(?:moved|relocated|switched|quit|stopped|gave up|joined|started|promoted|graduated|migrated|adopted|replaced|born|birthday|diagnosed)\b", clause, re.IGNORECASE)  # fmt: skip
    if _MOMENTARY.search(clause) and not changes:
        return None
    dates = resolve(clause, at)
    if any(found.start > at and not found.full for found in dates) and not re.search(
        r"birthday|born|\b(?:usually|normally|typically|generally|every|each|always)\b", clause
    ):
        return None
    spoken = _rest(clause, at) if dates and changes else clause
    for text in dict.fromkeys((clause, spoken)):
        for rule in _PERSONA:
            if rule.pattern.match(text):
                pointing = rule.priority in (PREFERENCE, HABIT) and _POINTING.search(text)
                return None if pointing else Candidate(clause, rule.kind, rule.priority)
    return None


def _episodic(clause: str, at: datetime) -> Candidate | None:
    if _TRIVIAL.search(clause):
        return None
    if _DECIDED.match(clause):
        return Candidate(clause, "episodic", DECISION)
    if not resolve(clause, at):
        return Candidate(clause, "episodic", EVENT) if _DONE.match(clause) else None
    if repetitions(clause, at):
        return None
    rest = _rest(clause, at)
    if not _EVENT.match(rest) and not _NOUN_ONLY.match(rest):
        return None
    return Candidate(clause, "episodic", DEADLINE if _DUE.search(clause) else EVENT)
