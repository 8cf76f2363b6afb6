package truthtable

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// mavenItem is a number, a word or a list of a Maven version, as its ComparableVersion splits it.
type mavenItem struct {
	number string // decimal
	word   string
	list   []*mavenItem
	kind   byte // 'n', 'w' or 'l'
}

var mavenWords = []string{"alpha", "beta", "milestone", "rc", "snapshot", "", "sp"}

const mavenRelease = 5 // the order of the empty word

func mavenWord(s string, digitFollows bool) *mavenItem {
	if digitFollows {
		if long, ok := map[string]string{"a": "alpha", "b": "beta", "m": "milestone"}[s]; ok {
			s = long
		}
	}
	if other, ok := map[string]string{"ga": "", "final": "", "release": "", "cr": "rc"}[s]; ok {
		s = other
	}
	return &mavenItem{kind: 'w', word: s}
}

// key returns the sort key of a word: known ones by their order, others after them.
func (i *mavenItem) key() string {
	if at := slices.Index(mavenWords, i.word); at >= 0 {
		return strconv.Itoa(at)
	}
	return strconv.Itoa(len(mavenWords)) + "-" + i.word
}

func (i *mavenItem) null() bool {
	switch i.kind {
	case 'n':
		return numbers(i.number, "0") == 0
	case 'w':
		return i.word == ""
	default:
		return len(i.list) == 0
	}
}

func parseMaven(s string) *mavenItem {
	root := &mavenItem{kind: 'l'}
	list, all := root, []*mavenItem{root}
	deeper := func() {
		next := &mavenItem{kind: 'l'}
		list.list = append(list.list, next)
		list, all = next, append(all, next)
	}
	add := func(i *mavenItem) { list.list = append(list.list, i) }
	token, digit := "", false
	item := func(digitFollows bool) *mavenItem {
		if token == "" {
			return &mavenItem{kind: 'n', number: "0"}
		}
		if digit {
			return &mavenItem{kind: 'n', number: token}
		}
		return mavenWord(token, digitFollows)
	}
	for _, c := range strings.ToLower(s) {
		isDigit := c >= '0' && c <= '9'
		switch {
		case c == '.' || c == '-':
			add(item(false))
			token = ""
			if c == '-' {
				deeper()
			}
			continue
		case token != "" && digit != isDigit:
			add(item(isDigit))
			token = ""
			deeper()
		}
		digit, token = isDigit, token+string(c)
	}
	if token != "" {
		add(item(false))
	}
	for _, l := range slices.Backward(all) {
		l.normalize()
	}
	return root
}

// normalize drops empty items before the end and before a list.
func (i *mavenItem) normalize() {
	for at, last := range slices.Backward(i.list) {
		if last.null() {
			i.list = slices.Delete(i.list, at, at+1)
		} else if last.kind != 'l' {
			break
		}
	}
}

func (i *mavenItem) compare(o *mavenItem) int {
	if o == nil {
		return i.compareNothing()
	}
	switch i.kind {
	case 'n':
		if o.kind == 'n' {
			return numbers(i.number, o.number)
		}
		return 1
	case 'w':
		if o.kind == 'w' {
			return strings.Compare(i.key(), o.key())
		}
		return -1
	}
	switch o.kind {
	case 'n':
		return -1
	case 'w':
		return 1
	}
	for at := range max(len(i.list), len(o.list)) {
		var c int
		switch {
		case at >= len(i.list):
			c = -o.list[at].compare(nil)
		case at >= len(o.list):
			c = i.list[at].compare(nil)
		default:
			c = i.list[at].compare(o.list[at])
		}
		if c != 0 {
			return c
		}
	}
	return 0
}

func (i *mavenItem) compareNothing() int {
	switch i.kind {
	case 'n':
		return numbers(i.number, "0")
	case 'w':
		return strings.Compare(i.key(), strconv.Itoa(mavenRelease))
	}
	for _, p := range i.list {
		if c := p.compare(nil); c != 0 {
			return c
		}
	}
	return 0
}

var mavenParsed = parsed(func(s string) (*mavenItem, bool) { return parseMaven(s), true })

func compareMaven(a, b string) (int, bool) {
	if a == "" || b == "" {
		return 0, false
	}
	x, _ := mavenParsed(a)
	y, _ := mavenParsed(b)
	return cmp.Compare(x.compare(y), 0), true
}
