"""What a dated English clause tells of where no appointment is named in it: what happened to the speaker or his own, what
he did, what he is going to do. Patterns alone; ``english_events`` decides with them."""

import re

from memstore.pipelines.rules.english_words import RELATIVES

_WHO = rf"(?:i|we|my\s(?:[\w'’-]+\s)?(?:{RELATIVES}|landlord|neighbou?r|best\sfriend|boss|team|company|doctor|gp|school|firm|client|clients|in-laws|folks|kid['’]?s\s\w+)(?:\sand\si)?|our\s(?:team|company|landlord|family|school|startup|client))"
_SOON = r"(?:also\s|just\s|finally\s|already\s|probably\s|officially\s|both\s|all\s|still\s)*"
_REGULAR = r"(?!(?:wanted|needed|tried|looked|asked|noticed|wondered|learned|realized|realised|liked|loved|enjoyed|used|seemed|happened|installed|updated|changed|added|created|followed|opened|clicked|typed|pasted|mentioned|talked|watched|played|opened|closed|restarted|cried|laughed|walked|stayed|worked|cooked|downloaded|searched|googled|checked|missed|cleaned|relaxed|turned|called\syou|fixed|tested|refactored|debugged|searched|compiled|decided)\b)[a-z]{2,}ed"
_IRREGULAR = r"(?:went|flew|drove|met|bought|sold|broke|won|lost|began|quit|left|ran|swam|rode|caught|got|had\s(?:an?|my|our|the|surgery)|gave|took|made\san\soffer|built|wrote\smy|taught|spoke|held|paid|hurt|fell|cut\smy|tore|hit|stole|grew|became|came|brought|sent|put\s(?:in|down)|chose|found\sout|found\s(?:a|an|my|our)|withdrew|sat\s(?:the|my)|threw|lent)"
_NOT_TOLD = r"(?!\s(?:it|this|that|them|you|to\s(?:know|see|sleep|bed|work\sout)|an?\s(?:error|idea|question|look|message|feeling|warning|great|good|bad|nice|long|rough|hard|terrible|lovely|blast|lot|weird|nightmare|dream|headache|chance|thought|problem|bug|crash|coffee|beer|pizza|sandwich|nap)|the\s(?:same|error|code|script|command|test|following|feeling|chance|movie|game|news|idea)|so\b|really\b|too\b|mad|angry|sick\sof|tired|lost|stuck|confused|home\slate|up\b|out\sof\sbed|there|badly|wrong|well|crazy|nuts|bored))\b"
_BE = r"(?:['’]m|['’]re|['’]s|\sam|\sare|\sis|\swas|\swere|\swill\sbe|['’]ll\sbe)"
_GOING = r"(?!(?:going|trying|looking|wondering|thinking|feeling|getting\s(?:an?\serror|this|the|tired|bored|better|mad|sick|old)|having\s(?:trouble|issues|problems|fun|a\s(?:bad|hard|good|great|rough))|working\son\s(?:it|this|that|the\s(?:code|bug|script))|doing\s(?:well|fine|ok|good|great)|being|asking|hoping|dying|struggling|testing|debugging|seeing\s(?:an?\s|this|the\s(?:same|error))|running\s(?:late|out|into|this|the\s(?:code|script|test))|sitting|sleeping|eating|crying|losing|freaking)\b)[a-z]{2,}ing"
_PLANS = re.compile(
    rf"^{_WHO}(?:{_BE}\s{_SOON}(?:not\s)?(?:going\sto\s(?!(?:be\s(?:late|sick|mad|fun|fine|great)|bed|sleep|need|try|die|explode|ask|use|say|see|think|kill)\b)[a-z]+|{_GOING})\b|(?:['’]ll|\swill)\s{_SOON}(?!(?:try|see|ask|let|need|be|use|say|think|know|check|do\s(?:it|that|this)|get\sback|send\sit|look)\b)[a-z]+\b|\s(?:starts?|leaves?|fly|flies|graduates?|finish(?:es)?|begins?|retires?|moves?|presents?|defends?|hosts?|turns?)(?=\s(?!it|this|that)\w)|\s(?:have|need|has|needs|['’]ve\sgot|plan|plans|want|has\sgot|have\sgot)\sto\s(?!(?:know|go\s(?:to\sbed|now)|say|ask|see|try|understand|figure|admit|use|sleep|leave|eat|be\b|think|run\b(?!\s(?:a|the)\s\w*(?:marathon|race)))\b)[a-z]+\b)[^?]{{2,80}}$",
    re.IGNORECASE,
)
_DID = re.compile(
    rf"^{_WHO}(?:['’]ve|\shave|\shas|\shad)?\s{_SOON}(?:{_REGULAR}|{_IRREGULAR}){_NOT_TOLD}[^?]{{2,80}}$",
    re.IGNORECASE,
)
_OWN = r"(?:(?:my|our)\s(?!(?:question|problem|code|script|issue|point|idea|guess|answer|query|function|test|tests|app|build|favou?rite)\b)(?:[\w'’-]+\s){1,3}?)"
_BEFALLEN = re.compile(
    rf"^{_OWN}(?:(?:is|are|was|were|got|gets|has\sbeen|have\sbeen)\s(?!(?:not|so|too|very|really|great|good|bad|nice|boring|fun|awful|terrible|here|there|wrong|broken|sick|hungry|tired|asleep|cute|being|an?\s(?:mess|joke|nightmare|disaster))\b)(?:[a-z]+(?:ed|en|ing|ut|ost|aid|old|it|off|due|born)|in\s|at\s|on\s|from\s|due|over|up\sfor)\b|(?:went\s(?:down|offline|live|missing|up)|died|broke|fell|crashed|failed|passed|arrived|starts?|started|ends?|ended|expires?|expired|leaves|left|opens|opened|closed|closes|came|comes|turns|turned|graduates|graduated|moves|moved|gets|got|had|has\s(?:an?|her|his)|won|lost|sold|quit|retires|retired|finishes|finished|begins|began|raised|is\sraising))\b[^?]{{0,70}}$",
    re.IGNORECASE,
)
_IS = re.compile(
    r"^(?:is|was|will\sbe)\s(?:my|our|the)\s(?!(?:best|worst|limit|day\sfor|question|problem|time)\b)(?:[\w'’-]+\s?){1,6}$",
    re.IGNORECASE,
)
_NEWS = re.compile(
    r"^(?:i|we)(?:['’]ve|\shave)?\s(?:just\s|finally\s|already\s|recently\s|officially\s)*(?:ordered|hired|applied\s(?:for|to)|signed\sup\sfor|registered\sfor|got\s(?:my|our)\s(?:[\w-]+\s){0,4}?(?:results?|visa|license|licence|degree|diploma|citizenship|green\scard|keys|certificate|certification|diagnosis|offer|tickets|scores?|grades?|permit)|finished\s(?:my|our|the)\s(?:[\w-]+\s){0,2}?(?:thesis|degree|course|book|novel|phd|dissertation|chemo|training|manuscript|bootcamp|internship|project)|completed\s(?:my|our|the)\s\w+|failed\s(?:my|the)\s(?:[\w-]+\s){0,3}?(?:test|exam|class|course|interview)|gave\sbirth|became\s(?:an?\s(?:aunt|uncle|grandparent|father|mother|dad|mom|citizen))|filed\sfor|was\s(?:diagnosed|accepted|promoted|laid\soff|rejected|hired)|got\sinto\s(?-i:[A-Z])\w+|moved\sin\swith|broke\sup\swith|split\sup|divorced|proposed\sto|adopted|inherited|crashed\smy|totaled|lost\smy\s(?:job|wallet|passport|mom|dad|mother|father|dog|cat)|was\sin\san?\saccident|(?:found|find)\sout\s(?:that\s)?i['’]?m\s(?:pregnant|having|allergic|diabetic|being))\b(?!\s(?:it|this|that|the\s(?:code|script))\b)[^?]{0,80}$",
    re.IGNORECASE,
)


def happened(rest: str) -> bool:
    """Whether the clause, of which ``rest`` is what its date leaves, tells of something that was or will be."""
    rest = re.sub(
        r"^(?:back|it['’]s|so|then|only|just|again|around|since)[\s,]+",
        "",
        rest.strip(" ,"),
        flags=re.IGNORECASE,
    )
    return any(pattern.match(rest) for pattern in (_PLANS, _DID, _BEFALLEN, _IS))


def is_news(clause: str) -> bool:
    """Whether the clause tells of what is done, without a date."""
    return _NEWS.match(clause) is not None
