"""English words and phrases that the rules for traits, orders and events are made of: parts of regular expressions."""

import re
from datetime import datetime

from memstore.pipelines.rules.dates import resolve

ADVERBS = r"(?:(?:also|really|still|just|now|currently|always|usually|mostly|mainly|generally|typically|primarily|often|absolutely|particularly|especially|personally|strongly|actually|recently|finally|officially|already|definitely|only|never|normally|strictly|highly|deeply|severely|very|quite|pretty|totally|truly|exclusively|rarely|simply|both|happily|deathly)\s){0,3}"
ME = rf"(?:i\s{ADVERBS})"
I_AM = rf"(?:i['’]m|i\sam|im)\s{ADVERBS}"
I_HAVE = rf"(?:i['’]ve|i\shave|ive)\s{ADVERBS}"
NOT_VAGUE = r"(?!(?:it|that|this|these|those|you|your|him|her|them|the\s(?:idea|way|ones?|answer|result|code|new|last|first|second|above|following)|how|what|when|where|why|to\s(?:know|ask|say|see|thank|hear|understand|think)|so|too|well|all|everything|nothing|something|anything|one|both|here|there|my\s(?:job|life)\s(?:right|today)|being\shere)\b)"
OBJECT = NOT_VAGUE + r"[^;!?]{2,80}"
PLACE = r"(?P<o>(?!(?:a\s(?:hurry|rush|mess|bit|way|world|simulation)|the\s(?:moment|past|future|middle|same|next|present|zone|right)|this|that|here|there|it|trouble|love|with|for)\b)[^;!?,]{2,60}(?:,\s(?-i:[A-Z])[\w .]{1,24})?)"
NAME = r"(?P<o>(?-i:[A-Z])[\w'’\-]{0,20}(?:\s(?-i:[A-Z])[\w'’\-.]{0,20}){0,3})"
JOBS = (
    r"(?:engineer|developer|programmer|teacher|professor|lecturer|doctor|physician|nurse|lawyer|attorney|designer|manager|student|analyst|scientist|researcher|architect|accountant|writer|author|journalist|editor|"
    r"salesperson|founder|co-?founder|freelancer|director|consultant|chef|cook|driver|pilot|photographer|artist|musician|translator|intern|lead|admin(?:istrator)?|dba|sre|devops|pm|ceo|cto|cfo|coo|vp|head\sof\s\w+|owner|"
    r"pharmacist|dentist|vet|veterinarian|therapist|psychologist|electrician|plumber|carpenter|mechanic|farmer|soldier|policeman|police\sofficer|firefighter|librarian|actor|actress|singer|barista|bartender|tester|operator|"
    r"coach|trainer|tutor|recruiter|marketer|statistician|economist|physicist|chemist|biologist|mathematician|historian|paramedic|surgeon|contractor|entrepreneur|retiree|postdoc|phd\s(?:student|candidate)|undergrad(?:uate)?|freshman|sophomore|"
    r"stay-at-home\s(?:mom|dad|mum|parent)|single\s(?:mom|dad|mum|parent)|team\slead|tech\slead|paralegal|clerk|secretary|assistant|technician|potter|illustrator|baker)"
)
RELATIVES = (
    r"(?:older\s|younger\s|little\s|big\s|eldest\s|youngest\s|oldest\s|twin\s|step)?(?:daughter|son|wife|husband|spouse|partner|fianc[eé]e?|girlfriend|boyfriend|mother|mom|mum|father|dad|parents|brother|sister|siblings?|grandmother|grandfather|grandma|grandpa|kids?|children|child|baby|"
    r"twins|(?:golden\s|border\s|german\s|french\s)?(?:retriever|labrador|lab|poodle|corgi|beagle|husky|tabby|siamese|terrier|bulldog|dachshund|collie|shepherd|pug)|dog|cat|puppy|kitten|parrot|hamster|rabbit|horse|turtle|pet|nephew|niece|cousin|uncle|aunt|roommate|flatmate|boss|manager|supervisor|advisor|mentor|family)s?"
)
FIELDS = (
    r"(?:budget|salary|rent|bedtime|commute|household|(?:full|first|last|real|middle|family|user)\s?)?name|nickname|birthday|birth\sdate|date\sof\sbirth|age|height|weight|shoe\ssize|blood\stype|star\ssign|zodiac\ssign|job|job\stitle|title|role|position|profession|occupation|employer|company|team|department|"
    r"project|major|degree|school|university|alma\smater|hometown|home\stown|home|nationality|native\slanguage|first\slanguage|mother\stongue|email(?:\saddress)?|phone(?:\snumber)?|address|time\s?zone|pronouns(?:\s)?|hobby|hobbies|laptop|computer|phone|editor|ide|shell|os|operating\ssystem|"
    r"browser|keyboard|tech\sstack|stack|main\slanguage|(?:primary|main|default|daily)\s[\w\s]{2,30}|car|bike|religion|diet|goal|motto|website|blog|github(?:\shandle)?|handle|username|working\shours|work\shours"
)
LATIN = r"(?-i:[A-Z0-9])[\w.+#/\-]*"
TECH = r"(?:vim|neovim|emacs|vscode|vs\scode|git|python|rust|go|golang|java|kotlin|scala|ruby|typescript|javascript|postgres(?:ql)?|mysql|sqlite|redis|docker|kubernetes|linux|macos|windows|ubuntu|arch|debian|fedora|zsh|fish|bash|tmux|react|vue|svelte|django|flask|fastapi|node|deno|aws|gcp|azure|terraform|ansible|notion|obsidian|slack|excel|figma|photoshop|c\+\+|c#|c|r|sql|haskell|elixir|clojure|swift|perl|php|lua|julia|matlab|latex|dvorak|colemak|jetbrains|pycharm|intellij|nix|nixos|pandas|pytorch|tensorflow)"
WEEKLY = r"(?:every|each)\s(?:other\s|single\s|\d+\s|two\s|few\s)?(?:day|morning|afternoon|evening|night|week|month|year|weekday|weekend|summer|winter|spring|autumn|(?:mon|tues|wednes|thurs|fri|satur|sun)day)s?(?:\s(?:morning|afternoon|evening|night)|\sat\s[\d:apm\s.]{1,8})?(?:\s(?:before|after)\s\w+)?|on\s(?:mon|tues|wednes|thurs|fri|satur|sun)days|daily|weekly|(?:once|twice|three\stimes|\d+\stimes)\sa\s(?:day|week|month|year)|most\s(?:days|mornings|evenings|weekends)|at\sweekends|on\sweekends|in\sthe\s(?:mornings?|evenings?)"


def without_dates(clause: str, at: datetime) -> str:
    parts, last = [], 0
    for found in resolve(clause, at):
        parts.append(clause[last : found.span[0]])
        last = found.span[1]
    rest = " ".join([*parts, clause[last:]])
    return re.sub(r"\s{2,}", " ", re.sub(r"\b(?:on|at|by|from|until|till)\s*$", "", rest.strip(" ,"))).strip(
        " ,"
    )
