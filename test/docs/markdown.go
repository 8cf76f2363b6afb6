package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/buildyard/buildyard/test/rig"
)

// page is a Markdown file.
type page struct {
	path     string  // from the root of the repository, with slashes
	blocks   []block // of sh, and the hidden ones, in order
	links    []link
	anchors  map[string]int // anchor -> how many headings have it
	problems []string       // each "LINE: TEXT"
}

// block is shell text of a page.
type block struct {
	line   int // of its first line of text
	text   string
	hidden bool           // in a comment
	skip   string         // reason; "" to run it
	output *regexp.Regexp // that a line of its output must match; nil: any
}

// link is a relative link.
type link struct {
	line         int
	path, anchor string
}

// loadPages reads the Markdown files of a repository.
func loadPages(ctx context.Context, root string) ([]*page, error) {
	list, err := rig.Output(ctx, root, "git", "ls-files", "-co", "--exclude-standard", "--deduplicate", "*.md")
	if err != nil {
		return nil, err
	}
	var pages []*page
	for _, path := range slices.Sorted(strings.Lines(list + "\n")) {
		path = strings.TrimSpace(path)
		text, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) || path == "" { // deleted, and not yet committed
			continue
		}
		if err != nil {
			return nil, err
		}
		pages = append(pages, parsePage(path, string(text)))
	}
	return pages, nil
}

var (
	fence     = regexp.MustCompile("^( *)(```+|~~~+) *([a-zA-Z0-9+-]*)[^`]*$")
	heading   = regexp.MustCompile(`^#{1,6} +(.*?) *#*$`)
	directive = regexp.MustCompile(`^<!-- docs-test: *(\w+) *(.*?) *(-->)?$`)
	codeSpan  = regexp.MustCompile("`[^`]*`")
	inline    = regexp.MustCompile(`\[([^\]]*)\]\(([^)]*)\)`)
	linkTo    = regexp.MustCompile(`\]\(\s*<?([^)\s>]+)>?[^)]*\)`)
	reference = regexp.MustCompile(`^\[[^\]]+\]: *(\S+)`)
	named     = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
)

// parser is the state of reading a page.
type parser struct {
	*page
	lines []string
	at    int   // of the next line
	next  block // what directives say of the next block
	armed bool  // a directive waits for its block
}

func parsePage(path, text string) *page {
	p := &parser{page: &page{path: path, anchors: map[string]int{}}, lines: strings.Split(text, "\n")}
	for p.at < len(p.lines) {
		line := p.lines[p.at]
		p.at++
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "<!--"):
			p.comment(strings.TrimSpace(line))
		case fence.MatchString(line):
			p.fenced(fence.FindStringSubmatch(line))
		default:
			p.prose(line)
		}
	}
	return p.page
}

func (p *parser) problem(format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf("%d: ", p.at)+fmt.Sprintf(format, args...))
}

// prose reads a line outside of blocks and comments.
func (p *parser) prose(line string) {
	if p.armed && strings.TrimSpace(line) != "" {
		p.problem("no sh block follows the docs-test comment")
		p.armed, p.next = false, block{}
	}
	if m := heading.FindStringSubmatch(line); m != nil {
		p.anchor(m[1])
	}
	plain := codeSpan.ReplaceAllString(line, "")
	for _, m := range named.FindAllStringSubmatch(plain, -1) {
		p.anchors[m[1]]++
	}
	for _, m := range append(linkTo.FindAllStringSubmatch(plain, -1), reference.FindAllStringSubmatch(plain, -1)...) {
		p.link(m[1])
	}
}

// link notes a relative link.
func (p *parser) link(to string) {
	if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
		return
	}
	path, anchor, _ := strings.Cut(to, "#")
	p.links = append(p.links, link{p.at, path, anchor})
}

// anchor notes the anchor of a heading, as the sites that show Markdown make it.
func (p *parser) anchor(text string) {
	text = inline.ReplaceAllString(text, "$1")
	var b strings.Builder
	for _, r := range strings.ToLower(text) {
		switch {
		case unicode.IsLetter(r), unicode.IsNumber(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	name := b.String()
	n := p.anchors[name]
	p.anchors[name]++
	if n > 0 {
		p.anchors[fmt.Sprintf("%s-%d", name, n)]++
	}
}

// comment reads a comment to its end.
func (p *parser) comment(first string) {
	m := directive.FindStringSubmatch(first)
	start := p.at
	var body []string
	if !strings.Contains(first, "-->") {
		for p.at < len(p.lines) && !strings.Contains(p.lines[p.at], "-->") {
			body = append(body, p.lines[p.at])
			p.at++
		}
		p.at++
	}
	if m == nil {
		if strings.HasPrefix(first, "<!-- docs-test") {
			p.problem("unknown form of a docs-test comment")
		}
		return
	}
	switch m[1] {
	case "setup":
		p.blocks = append(p.blocks, block{line: start + 1, text: strings.Join(body, "\n"), hidden: true})
	case "skip":
		if p.next.skip, p.armed = m[2], true; m[2] == "" {
			p.problem("a skipped block needs a reason")
		}
	case "output":
		var err error
		if p.next.output, err = regexp.Compile("(?m)" + m[2]); err != nil {
			p.problem("%v", err)
		}
		p.armed = true
	default:
		p.problem("unknown docs-test comment %q", m[1])
	}
}

// fenced reads a block to its end.
func (p *parser) fenced(m []string) {
	indent, mark, language := m[1], m[2], m[3]
	b := p.next
	b.line = p.at + 1
	var body []string
	for ; p.at < len(p.lines); p.at++ {
		line := strings.TrimPrefix(p.lines[p.at], indent)
		if end := strings.TrimSpace(line); strings.HasPrefix(end, mark) && strings.Trim(end, mark[:1]) == "" {
			break
		}
		body = append(body, line)
	}
	p.at++

	b.text = strings.Join(body, "\n")
	switch {
	case language == "sh":
		p.blocks = append(p.blocks, b)
	case language == "bash" || language == "shell":
		p.problem("a block of commands must be of the language sh, not %s", language)
	case language == "" && runs(p.path):
		p.problem("a block must name its language: sh, text, yaml ...")
	case p.armed:
		p.problem("the docs-test comment is not before an sh block")
	}
	p.armed, p.next = false, block{}
}
