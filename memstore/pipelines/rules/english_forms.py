"""How English orders to the assistant are put where no word says that they are for good: the manner of answers (be blunt
with me), the form of what it writes (code examples should be in Kotlin), rules for a kind of task or a condition. Patterns
alone; ``english_orders`` decides with them."""

import re

_PLEASE = r"(?:please\s|only\s|always\s|kindly\s|just\s|and\s|i['’]d\s(?:like|prefer|rather)\s(?:it\sif\s)?you\s(?:to\s)?|i\s(?:want|need)\syou\sto\s|you\s(?:should|must|can)\s|try\sto\s|make\ssure\s(?:to\s|you\s|that\syou\s)|feel\sfree\sto\s){0,3}"
_NOT = r"(?:don['’]t|do\snot|never|no\sneed\sto|you\sdon['’]t\s(?:need|have)\sto|stop|quit|avoid|please\sdon['’]t|there['’]s\sno\sneed\sto)\s"
_MADE = r"(?:(?:your|all|the|any|my)\s){0,2}(?:code\s(?:examples?|snippets?|samples?|comments?)|examples?|snippets?|comments|commit\smessages?|commits|replies|answers|responses|explanations|summaries|dates?|times?|prices|numbers|amounts|measurements|units|temperatures|variable\snames|function\snames|docs|documentation|docstrings|reports?|emails?|titles|headings|recipes|translations|links|sources|citations|tables|lists|diagrams|tests|queries|pull\srequests|prs|drafts|output)"
_ANSWERS = r"(?:it|things|everything|your\s(?:answers?|replies|responses|tone|explanations|messages)|answers|replies|responses|explanations|the\stone)"
_MANNER = r"(?:short|brief|concise|succinct|simple|casual|formal|informal|professional|friendly|polite|light|to\sthe\spoint|high-level|snappy|tight|minimal|terse|detailed|thorough|plain|conversational|technical|non-technical|jargon-free|direct|blunt|honest|frank|straightforward|gentle|kind|patient|critical|strict|harsh|specific|precise|encouraging|funny|sarcastic|serious|neutral|objective|real)"
_WRITES = r"(?:use|answer|reply|respond|write|call|address|speak|talk|keep|give|include|add|show|format|start|begin|end|avoid|put|cite|explain|ask|tell|check|run|remind|say|be|limit|provide|skip|omit|leave\sout|refer|convert|translate|wrap|return|list|mention|quote|follow|assume|confirm|summari[sz]e|stop|suggest|double-check|test|review|mark|comment|spell|treat|stick|flag|point\sout|warn|correct|prefer|ignore|drop|round|admit|let\sme\sknow|continue|just|only|always|never|don['’]t|do\snot|no)"
_LANGUAGE = r"(?-i:[A-Z])[\w+#.-]+"
_TAIL = r"[^;!?]{0,60}$"

FORMS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"^{_PLEASE}keep\s{_ANSWERS}\s(?:nice\sand\s|very\s|really\s|fairly\s|super\s)?{_MANNER}\b{_TAIL}",
        rf"^{_PLEASE}be\s(?:more\s|less\s|very\s|completely\s|brutally\s|as\s|really\s|a\s(?:bit|little)\smore\s)?{_MANNER}\b(?!\s(?:about\sthis|here|now)\b){_TAIL}",
        rf"^{_PLEASE}(?:talk|speak|write|explain\sthings|respond|reply|answer|sound|act|behave)(?:\sto\sme|\swith\sme)?\s(?:like|as\sif|as\sthough)\s(?!(?:this|that|it)\b){_TAIL}",
        rf"^{_PLEASE}(?:talk|speak|write|explain\sthings|respond|reply|answer)(?:\sto\sme|\swith\sme)?\s(?:more\s)?(?:casually|formally|briefly|concisely|directly|plainly|simply|slowly|informally|politely|honestly|succinctly|bluntly)\b{_TAIL}",
        rf"^{_PLEASE}(?:(?:one|two|three|four|five|\d+)\s(?:sentences?|paragraphs?|lines?|words?|bullet\spoints|options?|suggestions?)|short\sanswers|short\sreplies|brief\sanswers|bullet\spoints|plain\stext|no\s\w+)\s(?:max(?:imum)?|at\smost|tops|only|or\sless|or\sfewer)$",
        rf"^{_MADE}\s(?:should|must|need\sto|have\sto|are\sto|has\sto|can|go|belong)\s(?:always\s|only\s|not\s|never\s|all\s)?(?:be\s|use\s|follow\s|include\s|have\s|come\s|in\b|contain\s|stay\s|fit\s|start\s|end\s){_TAIL}",
        rf"^{_MADE}\s(?:(?:always|only|strictly)\s)?(?:in|as|with|without|under)\s[\w ,+#'’-]{{2,30}}(?:\s(?:only|always|please|at\sall\stimes|from\snow\son))$",
        rf"^{_PLEASE}(?:write|give|format|put|make|name|phrase|keep|style|structure)\s(?:me\s)?{_MADE}\s(?:in|as|with|without|under|using|like|to|short|brief|at|on|for|following)\s(?!(?:this|that|these|the\s(?:following|text|above))\b){_TAIL}",
        rf"^i\s(?:want|need|expect|prefer|like|['’]d\slike|would\slike)\s(?=all|your|every|my|answers|replies|responses|code|explanations|dates|summaries|examples|prices|sources){_MADE}\s(?:to\s|in\s|as\s|with\s|without\s|under\s|short|brief|concise|plain){_TAIL}",
        rf"^i(?:['’]d|\swould)\s(?:rather|prefer(?:\sit)?|like\sit|appreciate\sit)\s(?:if\s)?you\s(?:not\s|don['’]t\s|didn['’]t\s|never\s|always\s|just\s|only\s)?(?:gave|give|use[ds]?|wrote|write|answered|answer|kept|keep|skipped|skip|asked|ask|called|call|told|tell|showed|show|explain(?:ed)?|stopped|stop|started|start|put|avoid(?:ed)?|stuck|stick|replied|reply|apologi[sz]ed?|repeat(?:ed)?){_TAIL}",
        r"^i(?:['’]d|\swould)?\s(?:prefer|like|want)\s(?:british|american|us|uk|canadian|australian|metric|imperial|24-hour|12-hour|plain|short|concise|brief|detailed|longer|shorter|step-by-step|celsius|fahrenheit)\s(?:spelling|english|units|measurements|answers|replies|responses|explanations|time|format|text|conventions)\b[^;!?]{0,40}$",
        rf"^(?:if|when|whenever|any\stime|every\stime|each\stime|anytime|once)\s(?:you['’]?(?:re|ve|ll)?|i['’]?(?:m|ve)?|we|there['’]?s|something|it['’]?s|(?:writing|coding|translating|answering|summari[sz]ing|reviewing|explaining|editing|drafting|giving|suggesting|recommending|generating|formatting|replying|quoting|listing|debugging))\s[^;!?,]{{2,60}},\s(?:then\s)?{_PLEASE}{_WRITES}\b(?!\s(?:i|you|we|he|she|they|it)\b){_TAIL}",
        rf"^(?:for|in|with|on)\s(?:all\s|any\s|every\s|my\s){{0,2}}(?:code|coding|math|recipes?|emails?|drafts?|translations?|reviews?|code\sreviews?|technical\squestions?|work\sstuff|python|sql|answers|replies|lists?|comments|docs|documentation|summaries),?\s{_PLEASE}{_WRITES}\b{_TAIL}",
        rf"^{_NOT}(?:us(?:e|ing)|say(?:ing)?|writ(?:e|ing)|explain(?:ing)?|add(?:ing)?|includ(?:e|ing)|start(?:ing)?|end(?:ing)?|mention(?:ing)?|suggest(?:ing)?|recommend(?:ing)?|repeat(?:ing)?|summari[sz](?:e|ing)|thank(?:ing)?|greet(?:ing)?|compliment(?:ing)?|prais(?:e|ing)|apologi[sz](?:e|ing)|call(?:ing)?|ask(?:ing)?|translat(?:e|ing)|chang(?:e|ing)|touch(?:ing)?|rewrit(?:e|ing)|edit(?:ing)?|sugar-?coat(?:ing)?|patroni[sz](?:e|ing)|dumb(?:ing)?|lectur(?:e|ing)|moraliz(?:e|ing)|assum(?:e|ing)|mak(?:e|ing)\s(?:up|things\sup|stuff\sup))\b(?!\s(?:this|that|it|sorry|(?:the\s)?(?:first|second|last|next)\b|(?:a|the)\s(?:loop|library|class|function|list|variable|for)\b)){_TAIL}",
        r"^(?:you\s(?:can|may)\s)(?:use|include|add|write|go\sback\sto|start\susing|swear|curse|drop)\s[^;!?]{0,40}?\b(?:emojis?|bullet\spoints|markdown|tables|jargon|slang|formatting|formality)?\s?(?:again|now|from\snow\son|freely)$",
        rf"^{_PLEASE}(?:refer\sto|call|address|treat)\s(?:me|us|my\s[\w ]{{2,20}}|our\s[\w ]{{2,20}}|the\s(?:project|product|company|app|client)[\w ]{{0,10}}?)\s(?:as|by|like|in)?\s?(?!back\b|when\b|if\b|later\b|tomorrow\b)[\"“'‘]?[\w][\w '’\"”.-]{{1,40}}$",
        rf"^(?:ask|check\swith|tell|warn|consult|confirm\swith|notify)\s(?:me\s)?(?:first\s)?(?:before|prior\sto)\s(?:you\s)?{_TAIL}",
        rf"^{_PLEASE}(?:leave\sout|skip|omit|drop|cut)\s(?:all\s|any\s|the\s|your\s)?(?:intros?|introductions?|pleasantries|preambles?|disclaimers?|caveats|apologies|fluff|filler|small\stalk|summary\sat\sthe\send|boilerplate|greetings?|sign-?offs?|emojis?|jargon|compliments|flattery|obvious\sstuff|basics)\b{_TAIL}",
        rf"^{_PLEASE}(?:get|go|cut|jump)\s(?:straight\s|right\s)?to\sthe\s(?:point|answer|code)\b{_TAIL}",
        rf"^{_PLEASE}(?:speak|answer|reply|respond|write|talk|chat)\s(?:to\sme\s|with\sme\s|back\s)?(?:only\s|always\s)?in\s{_LANGUAGE}(?:\sonly)?$",
        r"^no\s(?:more\s)?(?:[\w-]+\s){0,2}(?:emojis?|markdown|bullets?|bullet\spoints|lists|apologies|jargon|tables|headers|headings|small\stalk|fluff|preamble|disclaimers|filler|slang|exclamation\s(?:marks|points)|caps|hedging|lectures|moralizing|flattery|acronyms|abbreviations|semicolons|em\sdashes|passive\svoice|spoilers|swearing|sarcasm|jokes|puns|cliches|footnotes|comments|bold|italics|code\sblocks|links)\b[\w ,'’-]{0,30}$",
        r"^(?:please\s|always\s)?(?:use|prefer)\s(?:tabs|spaces|single\squotes|double\squotes|snake_case|camelcase|kebab-case|type\shints|semicolons|oxford\scommas|sentence\scase|title\scase|pnpm|yarn|npm|bun|uv|poetry|async/await|functional\scomponents|hooks)\b(?:,?\s(?:not|instead\sof|over|rather\sthan)\s[\w -]{2,20}|\severywhere|\sonly)?$",
        rf"^(?:i['’]d|i\swould)\slike\syou\sto\s(?:always\s|never\s|not\s)?(?:quiz|challenge|correct|push|treat|call|ask|keep|act|be|speak|answer|reply|use|explain|teach|remind|check|start|end|include|avoid)\b(?!\s(?:this|that|it|these|the\s(?:following|text|code))\b){_TAIL}",
        rf"^(?:please\s)?treat\sme\s(?:as|like)\s{_TAIL}",
        rf"^(?:please\s)?(?:quote|show|list|round|express|display|convert)\s(?:all\s)?(?:prices|numbers|amounts|dates|times|temperatures|distances|measurements|currencies|units)\s(?:in|to|with|without|as|using)\s{_TAIL}",
    )
)  # fmt: skip
"""An order for good by its form."""
