package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// checkLinks lists the links of a page that lead nowhere. An anchor counts only in Markdown files.
func (p *page) checkLinks(root string, pages map[string]*page) (problems []string) {
	for _, l := range p.links {
		to := p.path
		if l.path != "" {
			to = path.Join(path.Dir(p.path), l.path)
		}
		target := pages[to]
		_, err := os.Stat(filepath.Join(root, to))
		switch {
		case strings.HasPrefix(to, ".."), path.IsAbs(l.path):
			problems = append(problems, fmt.Sprintf("%d: link out of the repository: %s", l.line, l.path))
		case err != nil:
			problems = append(problems, fmt.Sprintf("%d: file not found: %s", l.line, to))
		case l.anchor == "" || target == nil:
		case target.anchors[l.anchor] == 0:
			problems = append(problems, fmt.Sprintf("%d: anchor not found: %s#%s", l.line, to, l.anchor))
		}
	}
	return problems
}

// maxColumns is the longest line of a block.
const maxColumns = 120

// checkBlocks lists the lines of blocks that are too long.
func (p *page) checkBlocks() (problems []string) {
	for _, b := range p.blocks {
		if b.hidden {
			continue
		}
		for i, line := range strings.Split(b.text, "\n") {
			if n := utf8.RuneCountInString(line); n > maxColumns {
				problems = append(problems, fmt.Sprintf("%d: a line of %d columns, the limit is %d", b.line+i,
					n, maxColumns))
			}
		}
	}
	return problems
}
