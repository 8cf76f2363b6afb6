package scannerdiff

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/buildyard/buildyard/internal/scan/catalog"
)

// explanation is a line of the list: it explains matching differences.
type explanation struct {
	peer, side, kind, name, version, path string // patterns: * is anything
	why                                   string // class: reason
	used                                  int
}

// parseExplanations reads a list: lines of peer, side that has more (ours, theirs), kind, name, version, path, and
// class: reason, separated by tabs. A star stands for anything, a bar between alternatives. The first line that matches
// counts.
func parseExplanations(list string) []*explanation {
	var out []*explanation
	for line := range strings.Lines(list) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") || len(f) != 7 {
			continue
		}
		out = append(out,
			&explanation{peer: f[0], side: f[1], kind: f[2], name: f[3], version: f[4], path: f[5], why: f[6]})
	}
	return out
}

// like reports whether a text matches a pattern in which * matches anything.
func like(pattern, text string) bool {
	for alternative := range strings.SplitSeq(pattern, "|") {
		if glob(alternative, text) {
			return true
		}
	}
	return false
}

func glob(pattern, text string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, first)
	if !ok {
		return false
	}
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(text, part)
		}
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text, rest = text[i+len(part):], more
	}
}

// Report is the result of a run.
type Report struct {
	all            bool
	out            io.Writer
	lines          []*explanation
	passed, failed int
}

// NewReport returns a report that is printed to out. The list has the explanations of differences. all prints those
// that are explained, too.
func NewReport(list string, out io.Writer, all bool) *Report {
	return &Report{all: all, out: out, lines: parseExplanations(list)}
}

// Compare compares the packages of one kind.
func (r *Report) Compare(peer string, kind catalog.PackageType, ours, theirs Findings) {
	both := 0
	var unknown []string
	counts := map[string]int{}
	for side, of := range map[string][2]Findings{"ours": {ours, theirs}, "theirs": {theirs, ours}} {
		for i, paths := range of[0] {
			if i.kind != kind {
				continue
			}
			if _, same := of[1][i]; same {
				both++
				continue
			}
			counts[side]++
			text := fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s", peer, side, kind, i.name, i.version,
				strings.Join(slices.Compact(slices.Sorted(slices.Values(paths))), " "))
			if left := r.unexplained(peer, side, i, paths); len(left) > 0 {
				unknown = append(unknown, text)
			} else if r.all {
				fmt.Fprintln(r.out, "known", text)
			}
		}
	}
	slices.Sort(unknown)
	verdict := "ok"
	if len(unknown) > 0 {
		verdict = "UNKNOWN"
		r.failed++
	} else {
		r.passed++
	}
	fmt.Fprintf(r.out, "%-8s %-10s both %5d, only ours %5d, only theirs %5d, unknown %4d  %s\n", peer, kind, both/2,
		counts["ours"], counts["theirs"], len(unknown), verdict)
	for _, u := range unknown {
		fmt.Fprintln(r.out, "unknown", u)
	}
}

// unexplained returns the paths of a difference that no line explains.
func (r *Report) unexplained(peer, side string, i item, paths []string) []string {
	var left []string
	for _, p := range paths {
		n := slices.IndexFunc(r.lines, func(e *explanation) bool {
			return like(e.peer, peer) && e.side == side && like(e.kind, string(i.kind)) && like(e.name, i.name) &&
				like(e.version, i.version) && like(e.path, p)
		})
		if n < 0 {
			left = append(left, p)
			continue
		}
		r.lines[n].used++
	}
	return left
}

// End counts the classes and reports how many comparisons and explanations passed, and how many failed.
func (r *Report) End() (passed, failed int) {
	classes := map[string]int{}
	for _, e := range r.lines {
		class, _, _ := strings.Cut(e.why, ":")
		classes[class] += e.used
		if e.used > 0 {
			r.passed++
			continue
		}
		r.failed++
		fmt.Fprintf(r.out, "stale: no difference is explained by %s %s %s %s %s %s\n", e.peer, e.side, e.kind, e.name,
			e.version, e.path)
	}
	for _, c := range slices.SortedFunc(maps.Keys(classes),
		func(a, b string) int { return cmp.Compare(classes[b], classes[a]) }) {
		fmt.Fprintf(r.out, "class %-22s %6d\n", c, classes[c])
	}
	return r.passed, r.failed
}
