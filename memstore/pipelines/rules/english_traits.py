"""What an English clause says of the speaker: traits, and changes of them."""

import re
from datetime import datetime

from memstore.pipelines.rules.candidates import (
    ALLERGY,
    CHANGE,
    FAMILY,
    HABIT,
    HEALTH,
    IDENTITY,
    PREFERENCE,
    TOOLS,
    Candidate,
    Rule,
)
from memstore.pipelines.rules.dates import resolve
from memstore.pipelines.rules.english_lives import LIVES
from memstore.pipelines.rules.english_states import AT_WORK, STATES
from memstore.pipelines.rules.english_words import (
    ADVERBS,
    FIELDS,
    I_AM,
    I_HAVE,
    JOBS,
    ME,
    NAME,
    OBJECT,
    PLACE,
    RELATIVES,
    TECH,
    WEEKLY,
    without_dates,
)
from memstore.types import Kind

_MOMENTARY = re.compile(r"\b(?:today|tonight|right now|at the moment|just now|this (?:time|morning|afternoon|evening|week|one)|for now|temporarily|currently (?:trying|stuck|looking)|tomorrow|yesterday|last night|so (?:tired|happy|sad|angry|excited|bored|stressed)|again)\b", re.IGNORECASE)  # fmt: skip
_FORMERLY = re.compile(r"\b(?:used to|formerly|previously|back then|back when|as a (?:kid|child|teenager)|when i was|once|in the past|years ago|growing up|before)\b", re.IGNORECASE)  # fmt: skip


def _rule(pattern: str, priority: int, kind: Kind = "persona") -> Rule:
    return Rule(re.compile(pattern, re.IGNORECASE), kind, priority)


_PERSONA = (
    _rule(rf"{I_AM}(?:severely\s|highly\s|deathly\s|mildly\s)?allergic\sto\s(?P<o>(?!mondays?\b|work\b|meetings?\b|mornings?\b|bullshit\b|bad\b){OBJECT})$", ALLERGY),
    _rule(rf"{ME}(?:have|got|suffer\sfrom)\s(?:an?\s)?(?:\w+\s){{0,3}}(?:allergy|allergies|intolerance)\b[^;!?]{{0,40}}$", ALLERGY),
    _rule(rf"{I_AM}(?:a\s)?(?:strict\s)?(?:vegan|vegetarian|pescatarian|lactose[-\s]intolerant|gluten[-\s]intolerant|celiac|coeliac|diabetic|color-?blind|colour-?blind|left-handed|right-handed|asthmatic|dyslexic|kosher|halal|keto|teetotal(?:er)?|hard\sof\shearing|deaf|blind)\b[^;!?]{{0,40}}$", HEALTH),
    _rule(rf"{ME}(?:have|suffer\sfrom|was\sdiagnosed\swith)\s(?:type\s\d\s)?(?:a\s)?(?:chronic\s|mild\s|severe\s)?(?:diabetes|asthma|celiac(?:\sdisease)?|migraines?|epilepsy|adhd|autism|dyslexia|arthritis|anemia|hypertension|high\sblood\spressure|insomnia|depression|anxiety|eczema|gout|ibs|tinnitus|a\sbad\sback)\b[^;!?]{{0,30}}$", HEALTH),
    _rule(rf"(?:my\sname\sis|my\sname['’]s|i\sam\scalled|i['’]m\scalled|i\sgo\sby|people\scall\sme|everyone\scalls\sme|my\sfriends\scall\sme|friends\scall\sme)\s{NAME}$", IDENTITY),
    _rule(rf"{ME}(?:live|reside|am\sliving|am\sbased)\s(?:in|at|near|on|outside|just\soutside|with)\s{PLACE}$", IDENTITY),
    _rule(rf"(?:{I_AM}|we\sare\s|we['’]re\s|we\s)(?:(?:now\s)?(?:living|based|located|settled)|live)\s(?:in|at|near|outside)\s{PLACE}$", IDENTITY),
    _rule(rf"(?:{ME}|{I_HAVE}|we\s|we['’]ve\s)(?:moved|relocated|emigrated|moved\sback)\s(?:back\s|over\s|out\s|here\s)?(?:from\s[^;!?]{{2,30}}?\s)?(?:to|into)\s(?!(?:a\snew\s(?:desk|role)|the\snext)\b){PLACE}$", IDENTITY),
    _rule(rf"i['’]m\s(?!(?-i:Sorry|Done|Back|Here|Fine|Good|Great|Tired|Happy|Sad|Busy|Late|Not|So|Just|On|In|At|Ok|Okay|Sure|Ready|Very|Really|Glad|Using|Trying|Going|Looking|Learning)\b)(?P<o>(?-i:[A-Z][a-z]+(?:\s[A-Z][a-z]+)?))(?:,\s(?:an?|the)\s[^;!?]{{0,40}}{JOBS}\b[^;!?]{{0,40}})?$", IDENTITY),
    _rule(rf"{I_HAVE}been\s(?:learning|studying|playing|practi[cs]ing|using|living\sin|married|(?:an?\s)?(?:vegan|vegetarian|{JOBS})|working\s(?:at|as|for|in))\s?(?P<o>(?!(?:it|this|that|the\s(?:code|same))\b)[^;!?]{{0,50}}?)\s?\b(?:for|since)\s[^;!?]{{2,30}}$", IDENTITY),
    _rule(rf"{ME}(?:drive|own|ride|wear)\s(?:an?\s|my\s|contact\s|glasses)[^;!?]{{0,40}}$", PREFERENCE),
    _rule(rf"i\snever\s(?:eat|drink|smoke|use|watch|drive|wear|buy|cook|skip|work\son)\s{OBJECT}$", PREFERENCE),
    _rule(rf"(?:{I_AM}(?:originally\s)?from(?!\stime|\sthe\s(?:future|past))|{ME}(?:come|hail)\sfrom(?!\stime\sto\stime)|i\swas\sborn\s(?:and\sraised\s)?(?:in|on)|i\sgrew\sup\sin)\s(?P<o>{OBJECT})$", IDENTITY),
    _rule(rf"(?:{I_AM}|{ME}work\sas\s|{ME}became\s|{I_AM}working\sas\s)(?:an?\s|the\s)?(?P<o>(?:[\w\-/&+#]+\s){{0,4}}{JOBS}\b(?:\s(?:at|for|in|on|with|from|and|of)\s[^;!?]{{2,50}}|\sby\s\w+)?)$", IDENTITY),
    _rule(rf"(?:{ME}(?:work|teach|study|volunteer|intern)|{I_AM}(?:working|studying|interning|employed))\s(?:remotely(?:\sfrom\s[^;!?]{{2,24}}?)?\s|part-time\s|full-time\s)?(?:as|at|for|in|on\sthe|with|\w+\sat)\s(?P<o>(?!(?:it|this|that|the\s(?:moment|same|bug|issue)|a\s(?:bug|fix|problem|company$))\b)[^;!?]{{2,60}})$", IDENTITY),
    _rule(rf"(?:{ME}|{I_HAVE})(?:joined|started\s(?:working\s)?(?:at|as)|got\sa\sjob\s(?:at|as)|got\spromoted\sto|was\spromoted\sto|been\spromoted\sto|(?:lead|manage|run|own)(?=\s(?:an?|the|my)\s)|founded|graduated\sfrom|majored\sin|major\sin|have\sa\s(?:degree|phd|masters?|bachelors?)\sin|study)\s(?P<o>(?!(?:the\s(?:code|script|command|test|tests|query)|it|this|that|into|out|late|early)\b)[^;!?]{{2,60}})$", IDENTITY),
    _rule(rf"my\s(?:all-time\s)?(?:(?:preferred|favou?rite|go-to)\s[\w\s]{{2,30}}|hobby|hobbies)\s(?:is|are)\s(?P<o>{OBJECT})$", PREFERENCE),
    _rule(rf"my\s(?:{FIELDS})\s(?:is|are|['’]s|will\sbe)\s(?:now\s|currently\s|always\s)?(?P<o>(?!(?:not|broken|slow|down|wrong|missing|dead|so|too|very|really|acting|crashing|failing|late|sick|being|going|getting|driving|killing)\b)[^;!?]{{1,80}})$", IDENTITY),
    _rule(rf"{I_AM}(?P<o>\d{{1,3}}(?:\syears\sold)?|(?:single|married|divorced|engaged|widowed|retired|unemployed|self-employed)(?:\s(?:to|with|since)\s[^;!?]{{2,30}})?|(?:an?\s)?(?:introvert(?:ed)?|extrovert(?:ed)?|night\sowl|early\sbird|morning\sperson|perfectionist|minimalist|atheist|christian|muslim|buddhist|jewish|catholic))$", IDENTITY),
    _rule(rf"{I_AM}(?:an?\s)?(?P<o>(?:native\s)?(?-i:[A-Z])[a-z]+(?:ish|ese|an|ian|ean|ch|sh)(?:\scitizen|\sspeaker)?)$", IDENTITY),
    _rule(rf"(?:my|our)\s(?:\d+[-\s]year[-\s]old\s)?{RELATIVES}['’]?s?(?:,?\s(?-i:[A-Z])[\w]+,?)?\s(?:name\sis|names\sare|is\scalled|are\scalled|is\snamed|is\sallergic\sto|lives?\sin|works?\s(?:at|as|for|in)|is\s(?:an?\s)(?:\w+\s){{0,3}}(?:{JOBS}|retriever|terrier|poodle|beagle|corgi|labrador|tabby|siamese)|is\s\d{{1,2}}|turned\s\d{{1,2}}|loves?|likes?|hates?|speaks?|goes\sto|is\s(?-i:[A-Z])[a-z]+)\b[^;!?]{{0,60}}$", FAMILY),
    _rule(rf"(?:{ME}|{I_HAVE}|we\s|we['’]ve\s)(?:have|adopted|got|own)\s(?:a|an|one|two|three|four|five|\d)\s(?:[\w\-]+\s){{0,3}}{RELATIVES}\b[^;!?]{{0,60}}$", FAMILY),
    _rule(rf"(?:{ME}|{I_HAVE})(?:no\slonger|stopped|quit|gave\sup|given\sup|don['’]t)\s(?P<o>(?!(?:it|that|this|know|think|have\stime|care|understand|want|need|see|get|mind|believe|feel|remember|agree|like)\b)[^;!?]{{2,60}}?)(?:\sany\s?more|\sany\slonger)$", CHANGE),
    _rule(rf"{I_AM}not\s(?P<o>(?!(?:sure|it|that|this|getting|seeing|having|able|using\s(?:it|this|that)|in|receiving|hitting)\b)[^;!?]{{2,40}}?)\s(?:any\s?more|any\slonger)$", CHANGE),
    _rule(rf"(?:{ME}|{I_HAVE}|{I_AM})(?:no\slonger|quit|stopped|gave\sup|given\sup|done\swith)\s(?P<o>(?!(?:it|that|this|know|think|care|understand|because|the\s(?:app|program|game|process|container|server))\b)[^;!?]{{3,60}})$", CHANGE),
    _rule(rf"(?:{ME}|{I_HAVE}|we\s{ADVERBS}|we['’]ve\s{ADVERBS})(?:switched|migrated|converted|transitioned|changed|upgraded)\s(?:over\s|my\s\w+\s)?(?:from\s[^;!?]{{2,30}}?\s)?to\s(?P<o>{OBJECT})$", CHANGE),
    _rule(rf"(?:{ME}|{I_HAVE}|we\s{ADVERBS}|we['’]ve\s{ADVERBS})(?:replaced|swapped|ditched|dropped)\s[^;!?]{{2,30}}?\s(?:with|for|in\sfavou?r\sof|to)\s(?P<o>{OBJECT})$", CHANGE),
    _rule(rf"(?:{ME}(?:do\snot|don['’]t|dont|can['’]t|cannot)\s(?:really\s|usually\s)?(?:like|eat|drink|enjoy|smoke|drive|cook|stand|tolerate|use|watch|wear|own|believe\sin)|{ME}(?:love|like|enjoy|prefer|hate|dislike|adore|loathe|detest|despise|favou?r|avoid|value|cherish)|i['’]d\s(?:rather|prefer)|i\swould\s(?:rather|prefer))\s{OBJECT}$", PREFERENCE),
    _rule(rf"(?:{I_AM}(?:(?:afraid|scared|terrified)\sof(?!\s\w+ing)|fond\sof|into|a\s(?:big\s|huge\s)?(?:fan|lover)\sof|obsessed\swith|passionate\sabout|good\sat|fluent\sin|proficient\sin|skilled\sin|experienced\s(?:in|with)|learning|bad\sat|addicted\sto))\s(?!(?:it|that|this|you|losing|missing|failing|being\slate|how|what)\b){OBJECT}$", PREFERENCE),
    _rule(rf"{ME}(?:speak|know|can\sspeak|am\sable\sto\sspeak)\s(?:a\slittle\s|some\s|fluent\s|basic\s|native\s)?(?:(?-i:[A-Z])[a-z]+(?:ese|ish|ian|man|ch|ic|in|di|an|ean)|Urdu|Dutch|Greek|Thai|Tagalog|Swahili)\b[^;!?]{{0,40}}$", PREFERENCE),
    _rule(rf"{ME}(?:can|know\show\sto)\s(?:play\sthe|play\schess|juggle|ski|swim|surf|type\s\d+|code\sin|program\sin|bake|sail|drive\sa)\b[^;!?]{{0,40}}$", PREFERENCE),
    _rule(rf"{ME}(?:play)\s(?:the\s)?(?:piano|guitar|violin|cello|drums|bass|flute|saxophone|trumpet|chess|tennis|soccer|football|basketball|badminton|golf|hockey|volleyball|go|bridge|squash)\b[^;!?]{{0,40}}$", HABIT),
    _rule(rf"(?:{ME}|we\s{ADVERBS}|our\steam\s|my\steam\s|our\scompany\s|my\scompany\s)(?:uses?|codes?\sin|programs?\sin|writes?(?=\s(?:(?:mostly|mainly)\s)?{TECH}\b)|works?\s(?:mostly\s|mainly\s)?in|develops?\s(?:on|in)|deploys?\s(?:on|to|with)|runs?(?=\s{TECH}\b))\s(?:mostly\s|mainly\s|only\s)?(?=[^;!?]{{0,14}}\b{TECH}(?![\w])|(?:an?\s|the\s|my\s)?(?-i:[A-Z]))(?!(?:it|this|that|the\s(?:same|following)|your|these)\b)[^;!?]{{1,60}}$", TOOLS),
    _rule(rf"{I_AM}(?:using|on|running)\s(?:a\s|an\s|the\s)?(?:[\w.]+\s){{0,2}}{TECH}\b(?:\s[\d.]+)?(?:\s(?:as\smy|for\smy|on\smy|at\swork|daily|these\sdays)[^;!?]{{0,30}})?$", TOOLS),
    _rule(rf"(?:{WEEKLY}),?\s(?:i|we)\s{ADVERBS}(?:go\s|do\s|have\s)?(?!(?:am|was|feel|felt|get\s(?:this|an\serror)|got|see|saw|had|have\sto|will|went|need|try|think|want|did|forget|[a-z]+ed)\b)[a-z]+\b[^;!?]{{0,60}}$", HABIT),
    _rule(rf"{ME}(?!(?:am|was|will|feel|felt|get\s(?:this|an\serror)|got|saw|had|need|went|did|think|want|have\sto|see|forget|say|ask|tell|run\sinto|told|asked|said|did|tried|made|[a-z]+ed)\b)[a-z]+\s[^;!?]{{0,50}}?(?:{WEEKLY})(?:\s[^;!?]{{0,30}})?$", HABIT),
    _rule(rf"{ME[:-1]}(?:usually|always|typically|normally|generally)\s(?!(?:get|got|feel|forget|fail|fails|wonder|wanted|thought|think|happy|had|end|see|want|try|miss|lose|have)\b)[a-z]+\s[^;!?]{{2,60}})$", HABIT),
)  # fmt: skip
_RULES = (*_PERSONA, *STATES, *LIVES)

_POINTING = re.compile(r"\b(?:this|these|those|them|him|its|their|his|it|there)\b", re.IGNORECASE)
"""Who reads a memory by itself cannot know what is meant."""


def object_of(clause: str) -> re.Match[str] | None:
    """The match of a persona rule whose group ``o`` a correction may replace."""
    for rule in _RULES:
        found = rule.pattern.match(clause)
        if found and "o" in rule.pattern.groupindex and found["o"]:
            return found
    return None


def trait(clause: str, at: datetime, *, moved: bool = False) -> Candidate | None:
    """``moved``: news of a move or a new job came before."""
    if _FORMERLY.search(clause) and not re.search(
        r"\b(?:no longer|any ?more|switched|quit|stopped)\b", clause, re.IGNORECASE
    ):
        return None
    changes = re.search(r"\b(?:moved|relocated|switched|quit|stopped|gave up|joined|started|promoted|graduated|migrated|adopted|replaced|founded|cofounded|opened|born|birthday|diagnosed)\b", clause, re.IGNORECASE)  # fmt: skip
    if _MOMENTARY.search(clause) and not changes:
        return None
    dates = resolve(clause, at)
    if any(found.start > at and not found.full for found in dates) and not re.search(
        r"birthday|born|\b(?:usually|normally|typically|generally|every|each|always)\b", clause
    ):
        return None
    if moved and AT_WORK.match(clause):
        return Candidate(clause, "persona", IDENTITY)
    spoken = without_dates(clause, at) if dates and changes else clause
    for text in dict.fromkeys((clause, spoken)):
        for rule in _RULES:
            if rule.pattern.match(text):
                pointing = rule.priority in (PREFERENCE, HABIT) and _POINTING.search(text)
                return None if pointing else Candidate(clause, rule.kind, rule.priority)
    return None
