"""Small templates over fixed variables: hand-written ones, and many made by combining values with operations."""
import itertools
import random

VARIABLES = {
    "i": 7, "n": -3, "z": 0, "f": 2.5, "big": 1e16, "small": 0.00001, "t": True, "no": False, "nil": None, "s": "Hello World",
    "empty": "", "u": "Zürich 世界 👩\u200d🚀", "sp": "  padded\t\n", "html": "<a href='x'>\"&</a>", "lines": "one\ntwo\r\n\nthree",
    "l": [3, 1, 2, 1], "ls": ["b", "A", "c", "a"], "le": [], "d": {"b": 1, "a": [1, {"x": None}], "C": "v"}, "de": {},
    "rows": [{"name": "x", "n": 2, "on": True}, {"name": "Y", "n": 1, "on": False}, {"name": "x", "n": 3}],
    "mixed": [1, "a", None, True, 2.0, [1], {"k": "v"}],
}

VALUES = ["i", "n", "z", "f", "big", "t", "nil", "s", "empty", "u", "l", "le", "d", "missing", "ls", "(1, 'a')", "(5,)",
          "1e3", "'it\\'s'", '"q\\"\\n\\t\\x41\\u00e9"', "[1, 2.0, 'x', none, true]", "{'k': 1, 2: 'v'}", "range(3)"]

BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]

FILTERS = ["trim", "length", "count", "upper", "lower", "capitalize", "title", "first", "last", "list", "string", "int",
           "float", "abs", "round", "round(1)", "round(1, 'ceil')", "tojson", "tojson(indent=2)", "escape", "e", "sort",
           "sort(reverse=true)", "sort(case_sensitive=true)", "unique|list", "reverse|list", "sum", "min", "max",
           "wordcount", "join(', ')", "join", "default('x')", "default('x', true)", "d(1)", "items|list", "dictsort",
           "indent", "indent(2, true)", "indent(width='> ', blank=true)", "replace('l', 'L')", "replace('o', '0', 1)",
           "select|list", "reject|list", "select('string')|list", "map('string')|list", "map('upper')|join('-')",
           "batch(2)|list", "batch(3, 0)|list", "center(20)", "int(5)", "int(base=16)", "float(1.5)", "tojson|length",
           "tojson(sort_keys=true)", "tojson(separators=(',', ':'))", "tojson(ensure_ascii=true)", "safe", "trim('H d')",
           "string|length", "list|length", "nothing_of_the_kind"]

TESTS = ["defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean",
         "true", "false", "odd", "even", "divisibleby 2", "divisibleby(3)", "lower", "upper", "callable", "equalto 7",
         "eq(7)", "ne 7", "gt 1", "lt 1", "ge(1)", "le 7", "in [7, 'x', none]", "sameas none", "not none", "not defined",
         "not string", "nothing_of_the_kind"]

METHODS = ["strip()", "lstrip()", "rstrip()", "strip('Hd')", "lstrip('He')", "rstrip('dl ')", "split()", "split(' ')",
           "split('l', 1)", "rsplit('l', 1)", "rsplit(None, 1)", "split(None, 1)", "split(maxsplit=1)", "splitlines()",
           "splitlines(true)", "startswith('H')", "endswith('d')", "startswith(('x', 'H'))", "endswith('o', 0, 5)", "upper()",
           "lower()", "title()", "capitalize()", "replace('l', '')", "replace('', '-')", "replace('l', 'L', 2)", "find('o')",
           "rfind('o')", "find('zz')", "find('o', 5)", "find('o', -4, -1)", "index('W')", "count('l')", "count('')",
           "isdigit()", "isalpha()", "isalnum()", "isspace()", "isupper()", "islower()", "join(['a', 'b'])", "join('abc')",
           "partition(' ')", "rpartition('o')", "removeprefix('He')", "removesuffix('ld')", "zfill(15)", "ljust(14, '.')",
           "rjust(14)", "center(15, '*')", "swapcase()", "format(1)", "get('b')", "get('q')", "get('q', 5)", "keys()",
           "values()", "items()", "keys()|list", "index(1)", "count(1)", "append(1)", "pop()", "update({})", "copy()",
           "no_method()", "b", "missing_attribute", "missing.attribute"]

SLICES = ["[0]", "[-1]", "[99]", "[1:]", "[:2]", "[:-1]", "[::-1]", "[::2]", "[-2:]", "[5:1:-1]", "[1:99]", "[-99:2]", "[2:1]",
          "[::0]", "[:]", "['b']", "['zz']", "[none]", "[1, 2]", "[i]", "[:i]", ".0"]

HAND = [
    # white space control
    "a\n  {% if t %}\n b\n  {% endif %}\nc\n", "a\n  {%- if t -%}\n b\n  {%- endif -%}\nc\n", "  {%+ if t %}x{% endif %}\n",
    "{% if t +%}\nx{% endif %}\n", "x {{- i -}} y", "x  {# c #}\n y", "x  {#- c -#}\n y", "  {# c #}\nz", "{{ i }}\n", "{{ i }}\n\n",
    "\n\n{{ i }}", "a\r\nb\rc{{ i }}\r\n", "{% set x = 1 %}\n\n{{ x }}", "  {{ i }}", "\t{% set x = 1 %}  \n{{ x }}", "a {% set x = 1 %} b",
    "{% raw %}\n {{ x }} {% y %}\n{% endraw %}\nz", "a  {%- raw -%}  {{ x }}  {%- endraw -%}  b", "{% raw %}a{% endraw %}", "{##}x{#-#} y",
    "{%-set x=1-%}{{x}}", "{{-1}}", "{{ -1 }}", "{{+1}}", "{# {{ x }} #}{{ i }}", "x\n   {{ i -}}   \n  y", "x\n   {%- if t %} a {% endif -%}\n y",
    "{% if t %}  \n  x\n  {% endif %}  \n y", "}} %} #}", "{ {", "{{ '}}' }}", "{{ '%}' }}{{ \"{{\" }}", "{{ {'a': {'b': 1}}['a'] }}",
    # loops
    "{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}:{{ loop.length }}{% else %}none{% endfor %}", "{% for x in le %}{{ x }}{% else %}none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}", "{% for x in missing %}{{ x }}{% else %}e{% endfor %}",
    "{% for x in l %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for a in l %}{% for b in ls %}{{ loop.index }}{{ b }}{% endfor %}{{ loop.index }} {% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}",
    "{% for a, b in [[1, 2], [3]] %}{{ a }}{% endfor %}", "{% for x in 5 %}{% endfor %}", "{% for x in nil %}{% endfor %}",
    "{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }}{% endfor %}", "{% for x in range(2, 9, 3) %}{{ x }}{% endfor %}",
    "{% for x in range(200000) %}{% endfor %}", "{% set ns = namespace(go=true) %}{% for x in l if ns.go %}{{ x }}{% set ns.go = false %}{% endfor %}",
    "{% set ns = namespace(go=true) %}{% for x in l if ns.go %}{{ x }}{{ loop.last }}{% set ns.go = false %}{% endfor %}", "{{ loop }}", "{% for loop in l %}{{ loop }}{% endfor %}",
    "{% for x in l|select('gt', 1) %}{{ x }}{{ loop.length }}{% endfor %}", "{% for x in rows|selectattr('on') %}{{ x.name }}{% endfor %}",
    "{% for x in l %}{% else %}{{ x }}{% endfor %}", "{% for x in l %}{{ x }}{% endfor %}{{ x }}", "{% for x in (1, 2), %}{{ x }}{% endfor %}", "{% for x in 1, 2 %}{{ x }}{% endfor %}",
    "{% for x in [1, 2] if t else le %}{{ x }}{% endfor %}", "{{ i }}",
    # scopes and assignment
    "{% set x = 1 %}{% for y in l %}{% set x = x + y %}{{ x }} {% endfor %}{{ x }}", "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set (a, b) = l[:2] %}{{ a }}{{ b }}", "{% set a, b = l %}", "{% set x %}\n  a{{ i }}\n{% endset %}[{{ x }}]",
    "{% set x | upper | trim %} ab {% endset %}[{{ x }}]", "{% set ns = namespace() %}{% set ns.a = 1 %}{{ ns.a }}{{ ns.b }}", "{% set ns = namespace(a=1, b={}) %}{{ ns.a }}{{ ns['b'] }}",
    "{% set ns = namespace(d) %}{{ ns.b }}", "{% set d.x = 1 %}", "{% set q.x = 1 %}", "{% with a = 1, b = i %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% if missing %}{% set v = 1 %}{% endif %}{{ v }}",
    "{% for y in l %}{% set q = y %}{% endfor %}{{ q }}", "{% set x %}{% set inner = 1 %}{% endset %}{{ inner }}", "{% filter upper %}ab{{ s }}{% endfilter %}", "{% filter trim|title %}  ab cd {% endfilter %}",
    "{% set true = 1 %}", "{% set 1 = 2 %}", "{% set x = namespace %}{{ x is callable }}", "{% set range = 5 %}{{ range }}",
    # macros
    "{% macro m(a, b=2) %}{{ a }}-{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, b=3) }} {{ m(b=1, a=2) }} {{ m() }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q=2) }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, x=3) }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(x) %}{% if x > 0 %}{{ x }}{{ m(x - 1) }}{% endif %}{% endmacro %}{{ m(4) }}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{{ i }}{% endcall %}", "{% macro m() %}<{{ caller(1, 2) }}>{% endmacro %}{% call(a, b) m() %}{{ a + b }}{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% set x = 1 %}{% macro m() %}{{ x }}{% set x = 5 %}{% endmacro %}{{ m() }}{% set x = 2 %}{{ m() }}{{ x }}", "{% macro m() %}a{% endmacro %}{{ m() ~ m() | upper }}{{ m() is string }}",
    "{% macro m() %}{{ m2() }}{% endmacro %}{% macro m2() %}two{% endmacro %}{{ m() }}", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% for x in l %}{% macro m() %}{{ x }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}", "{% macro m(a, b) %}{{ b is defined }}{% endmacro %}{{ m(1) }}",
    "{% macro m(*a) %}{% endmacro %}", "{{ dict(a=1, **{'b': 2}) }}", "{% macro m(a, b, c) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(*[1, 2], c=3) }}{{ m(*l[:3]) }}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{% set ns = namespace(n=0) %}{% macro m() %}{% set ns.n = ns.n + 1 %}{% endmacro %}{{ m() }}{{ m() }}{{ ns.n }}",
    # expressions
    "{{ 1 + 2 * 3 ** 2 }}", "{{ -2 ** 2 }}", "{{ 2 ** 3 ** 2 }}", "{{ 2 ** -1 }}", "{{ 1 ~ 2 + 3 }}", "{{ 1 + 2 ~ 3 }}", "{{ not t or t }}", "{{ not (t and no) }}", "{{ 1 < 2 < 3 }}", "{{ 1 < 3 < 2 }}", "{{ 1 == 1 == 1 }}", "{{ 'a' if no }}", "{{ 'a' if no else 'b' if no else 'c' }}",
    "{{ i is odd and i is integer }}", "{{ not i is odd }}", "{{ i is not odd }}", "{{ missing is not defined }}", "{{ -i | abs }}", "{{ (-i) | abs }}", "{{ i | string ~ 's' }}", "{{ '%s-%d-%.2f-%5d|%-5s|%05d|%x|%%' % ('a', 3, 2.567, 42, 'ab', 7, 255) }}", "{{ '%(a)s' % {'a': 1} }}", "{{ '%s' % l }}", "{{ '%s %s' % (1,) }}",
    "{{ '{} {}'.format(1, 'a') }}", "{{ '{1}{0}{x}'.format(1, 2, x=3) }}", "{{ '{:>5}|{:<5}|{:^5}|{:05d}|{:.2f}|{:,}|{:x}|{:%}'.format('a', 'b', 'c', 42, 2.345, 1234567, 255, 0.5) }}", "{{ '{{}}'.format() }}", "{{ '%s and %s'|format('a', 2) }}", "{{ '%(x)s'|format(x=3) }}", "{{ '{0[b]} {1.name}'.format(d, rows[0]) }}", "{{ '{!r}'.format('a') }}",
    "{{ 0x1F }} {{ 0o17 }} {{ 0b101 }} {{ 1_000 }} {{ 1.5e3 }} {{ 1e-7 }} {{ 1e22 }}", "{{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 123456789.125 }} {{ -0.0 }} {{ 1/3 }} {{ 5e-324 }} {{ 1e100 }}", "{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % -3 }} {{ -7 % 3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 6 / 2 }}", "{{ 1 // 0 }}", "{{ 1 / 0 }}", "{{ 5 % 0 }}",
    "{{ 'a' 'b' \"c\" }}", "{{ [1, 2] + [3] }} {{ [0] * 3 }} {{ 'ab' * 2 }} {{ (1,) + (2,) }} {{ 'x' * -1 }}", "{{ [] }} {{ {} }} {{ () }} {{ (1,) }} {{ [[]] }} {{ {'a': {}} }}", "{{ {'a': 1, 'a': 2} }} {{ {1: 'a', true: 'b'} }} {{ {1.0: 'x', 1: 'y'} }}", "{{ {[1]: 2} }}", "{{ d.a[1].x is none }}", "{{ d['a'][0] }}", "{{ t }}", "{{ rows[0]['name'] }}", "{{ missing.x }}", "{{ missing['x'] }}", "{{ d.missing.x }}", "{{ d.missing }}", "{{ missing() }}", "{{ i() }}", "{{ missing + 1 }}", "{{ missing ~ 1 }}", "{{ missing == missing }}", "{{ missing in l }}", "{{ 1 in missing }}", "{{ missing|length }}", "{{ missing|list }}", "{{ missing|tojson }}", "{{ missing < 1 }}", "{{ 'a' < 1 }}", "{{ nil + 1 }}", "{{ nil < 1 }}", "{{ [1, 2] < [1, 3] }} {{ 'a' < 'b' }} {{ 'Z' < 'a' }} {{ (1,) < (1, 0) }}", "{{ 1 == 1.0 }} {{ true == 1 }} {{ '1' == 1 }} {{ none == false }} {{ [1] == (1,) }} {{ [1] == [1.0] }} {{ {'a': 1} == {'a': 1} }}", "{{ 'ell' in s }} {{ 'b' in d }} {{ 2 in l }} {{ [1] in [[1]] }} {{ 1 in s }}",
    "{{ l|map('string')|join }} {{ rows|map(attribute='name')|list }} {{ rows|map(attribute='on', default='?')|list }}", "{{ rows|selectattr('n', 'gt', 1)|map(attribute='name')|join(',') }}", "{{ rows|rejectattr('on')|list|length }}", "{{ rows|selectattr('on', 'defined')|list|length }}", "{{ rows|selectattr('name', 'equalto', 'x')|list }}", "{{ rows|selectattr('name', 'in', ['Y'])|first }}", "{{ rows|sort(attribute='name,n')|map(attribute='n')|list }}", "{{ rows|sort(attribute='n', reverse=true)|map(attribute='n')|list }}", "{{ rows|sum(attribute='n') }} {{ l|sum(start=10) }}", "{{ rows|min(attribute='n') }} {{ rows|max(attribute='n') }} {{ ls|min }} {{ ls|max(case_sensitive=true) }} {{ le|min }}", "{{ rows|unique(attribute='name')|map(attribute='n')|list }} {{ ls|unique|list }}", "{{ rows|groupby('name')|list }}", "{% for g, items in rows|groupby('name', case_sensitive=true) %}{{ g }}{{ items|length }}{% endfor %}", "{{ rows|groupby('on', default=false)|map(attribute='list')|map('length')|list }}", "{{ rows|join('; ', attribute='name') }}", "{{ d|dictsort(false, 'value') }}", "{{ {'b': 2, 'a': 3}|dictsort(by='value', reverse=true) }}", "{{ l|map('nothing')|list }}", "{{ (l|select('odd'))|list }}", "{% if le|select %}yes{% endif %}", "{{ (le|select|list) or 'none' }}", "{% set g = l|map('string') %}{{ g|list }}{{ g|list }}", "{{ l|map('int')|first }}", "{{ l|map('int')|last }}", "{{ l|reverse|first }}", "{{ 'abc'|reverse }}", "{{ d.keys()|list }} {{ d.values() }} {{ d.items()|list }}", "{{ d.keys() }} {{ d.items() }}", "{{ range(3) }} {{ range(1, 5)|list }} {{ range(5, 0, -2)|list }} {{ range(3)|length }} {{ range(3)[1] }}",
    "{{ mixed }} {{ mixed|tojson }}", "{{ s|length }} {{ u|length }} {{ u[2:5] }} {{ u[::-1] }} {{ u|upper }} {{ u|tojson }}", "{{ lines.splitlines() }} {{ lines|indent(2) }}", "{{ html|e }} {{ html|escape|safe }} {{ html }} {{ html|tojson }}", "{{ 'x'|e ~ '<' }}", "{{ strftime_now('%Y-%m-%d %H:%M:%S %j %A %a %B %b %y %I %p %% %-d %e %F %T %D %w %u') }}", "{{ raise_exception('no: ' ~ i) }}", "{% if no %}{{ raise_exception('x') }}{% endif %}ok", "{{ joiner() is callable }}{% set j = joiner('|') %}{% for x in l %}{{ j() }}{{ x }}{% endfor %}", "{{ dict(a=1) }} {{ dict([('a', 1)], b=2) }}", "{{ d is mapping and d is iterable and d is sequence }} {{ s is sequence }} {{ i is iterable }}", "{{ 'trim' is filter }} {{ 'odd' is test }}", "{{ t is true }} {{ 1 is true }} {{ t is number }} {{ t is integer }} {{ 1.0 is float }} {{ 1 is integer }} {{ t is boolean }}",
    "{{ 3.7|int }} {{ '3.7'|int }} {{ 'x'|int }} {{ '0x1f'|int(base=16) }} {{ ' 42 '|int }} {{ '1e2'|float }} {{ 'nan'|float }} {{ true|int }} {{ none|int }} {{ [1]|int(7) }}", "{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 2.5|round|int }} {{ 1234.5|round(-2) }} {{ 7|round }} {{ 7|round(1, 'floor') }} {{ 2.1|round(0, 'ceil') }}", "{{ 'it''s' }}", "{{ 'a\\nb\\\\c\\q' }}", "{{ ['a\\nb', \"it's\", 'q\"', '\\'\"', 'é', '\\x00', '\\u200b'] }}", "{{ s }}", "{{ (1, 2)[0] }} {{ [1, 2].0 }} {{ [[1, 2]].0.1 }}", "{{ [1, 2,] }} {{ {'a': 1,} }} {{ (1, 2,) }}", "{{ i if i else 0 }}", "{{ l[-1:][0] }}", "{{ (l + ls)[1:-1] }}", "{{ 1 if t else 2 if t else 3 }}", "{{ none is none }} {{ None }} {{ True }} {{ False }}", "{{ foo is defined and foo }}", "{{ d.get('a')[0] + 1 }}", "{{ 'a,b,c'.split(',')|join(' ')|upper|replace('A', 'x')|length }}", "{{ ('<think>' ~ s ~ '</think> rest').split('</think>')[-1].strip() }}", "{{ 'x' is in 'xyz' }}", "{{ i is divisibleby 7 }}{{ i is divisibleby(2) }}", "{{ 'AB' is upper }}{{ 'a1' is lower }}{{ '1' is lower }}", "{{ l is sameas l }}", "{{ i is eq 7 }}{{ i is not eq 7 }}", "{{ s is string and s|length > 3 }}", "{{ [] is sequence and [] is iterable and [] is not mapping }}", "{{ i is number is true }}", "{{ 5 is odd if t else 3 }}",
    "{{ 'ß ﬁ ŉ'.upper() }} {{ 'ΑΣ ΟΔΟΣ'.lower() }} {{ 'they\\'re BILL'.title() }} {{ 'they\\'re b-i <c>'|title }} {{ 'éA'|capitalize }} {{ 'İ'.lower()|length }}",
    "{{ 1 }}", "{{ 9223372036854775807 }} {{ -9223372036854775807 }}", "{{ 'a'|center(4) }}|{{ 'ab'|center(5) }}|", "{{ 'a b_c d-e'|wordcount }}", "{{ {'a': (1, 2), 'b': [none, true]}|tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5}|tojson }}", "{{ {'b': [], 'a': {}, 'c': [1, {'d': 2}]}|tojson(indent=2, sort_keys=true) }}", "{{ [1, [2, 3]]|tojson(indent=0) }} {{ [1]|tojson(indent='--') }} {{ [1, {'a': 2}]|tojson(separators=(';', '=')) }}", "{{ '\\x00\\x1f\\x7f\\u2028\\\\/'|tojson }} {{ u|tojson(ensure_ascii=true) }}", "{{ 1.0|tojson }} {{ 1e16|tojson }} {{ 1e-7|tojson }} {{ 100000000000000000000.0|tojson }}", "{{ namespace|tojson }}", "{{ x.y.z }}", "{{ s[0] }}{{ s[-1] }}{{ s[100] }}", "{{ l['x'] }}", "{{ s['upper']() }}", "{{ d['keys']()|list }}", "{{ {'items': 5}.items() | list }} {{ {'items': 5}['items'] }}", "{{ l.append(3) }}", "{{ t }}", "{% if l.append %}a{% else %}b{% endif %}",
    # malformed
    "{{", "{%", "{# x", "{{ }}", "{% %}", "{% if %}", "{% if t %}", "{% endif %}", "{% for %}", "{% for x l %}{% endfor %}", "{% foo %}", "{{ 1 + }}", "{{ (1 }}", "{{ 1) }}", "{{ [1 }}", "{{ 'a }}", "{{ a b }}", "{{ a..b }}", "{{ a.'b' }}", "{{ |upper }}", "{{ a| }}", "{{ f(a=1, 2) }}", "{{ f(**a, *b) }}", "{{ @ }}", "{% else %}", "{% for x in l %}{% endif %}", "{% set %}", "{% set x %}", "{% macro %}{% endmacro %}", "{% break %}", "{% if t %}{% else %}{% else %}{% endif %}", "{% raw %}x", "{% if t %}{% elif no %}{% endif %}ok", "{% for x in l %}{% else %}{% else %}{% endfor %}", "{% endfor %}", "{{ a is }}", "{{ a is is }}", "{{ not }}", "{{ 1 if }}", "{{ 1, 2 }}", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{{ a is b is c }}", "{{ {1} }}", "{{ {'a' 1} }}", "{{ l[1:2:3:4] }}", "{% call i %}{% endcall %}", "{% filter %}x{% endfilter %}", "{% with a %}{% endwith %}", "{% with %}x{% endwith %}", "{% generation %}x{{ i }}{% endgeneration %}", "y",
]


def snippets():
    """Yields (template, variables); the same ones in every run."""
    templates = list(HAND)
    templates += ["{{ %s %s %s }}" % (a, op, b) for a, op, b in itertools.product(VALUES, BINARY, VALUES)][::5]
    names = list(VARIABLES) + ["missing"]
    templates += ["{{ %s | %s }}" % (v, f) for v, f in itertools.product(names, FILTERS)]
    templates += ["{{ %s is %s }}" % (v, t) for v, t in itertools.product(names, TESTS)]
    templates += ["{{ %s.%s }}" % (v, m) for v, m in itertools.product(["s", "u", "sp", "lines", "d", "l", "missing"], METHODS)]
    templates += ["{{ %s%s }}" % (v, x) for v, x in itertools.product(["s", "u", "l", "d", "ls", "empty", "(1, 2, 3)", "missing"], SLICES)]
    random.seed(7)
    for _ in range(400):
        templates.append("{{ %s }}" % expression(3))
    for template in templates:
        if not out_of_reach(template):
            yield template, VARIABLES


def out_of_reach(template):
    """Python's complex numbers, which cadre refuses."""
    return template == "{{ n ** f }}"


def expression(depth):
    """A random expression."""
    if depth == 0:
        return random.choice(["i", "f", "s", "l", "t", "no", "nil", "d.b", "1", "2", "'x'", "missing", "ls[0]"])
    a, b, c = (expression(depth - 1) for _ in range(3))
    return random.choice([
        f"{a} + {b}", f"{a} ~ {b}", f"({a}) * {b}", f"{a} == {b}", f"({a}) and ({b})", f"{a} or {b}", f"not {a}", f"{a} if {b} else {c}",
        f"[{a}, {b}]", f"({a}, {b})[1]", f"({a})|string|length", f"({a})|tojson", f"({a}) is string", f"({a})|default({b})",
        f"[{a}, {b}, {c}]|select|list", f"{{'k': {a}}}.k", f"({a})|string|upper", f"[{a}]|join('+')", f"{a} ~ {b} ~ {c}", f"-({a})|int", f"{a} in [{b}]"])
