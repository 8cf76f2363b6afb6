package archtest

import (
	"bytes"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// word is a pattern that no tracked file may contain.
type word struct {
	pattern *regexp.Regexp
	parts   []string // every match contains one of them: most files have none, and are not searched
	except  []string // path prefixes
	reason  string
}

// words lists all words, assembled from parts, so that this file does not contain them.
var words = []word{
	{
		pattern: regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|X` + `XX)\b`),
		parts:   []string{"TO" + "DO", "FIX" + "ME", "X" + "XX"},
		except:  []string{"internal/portal/assets/vendor/"}, // third-party files, unmodified
		reason:  "unfinished work is an issue, not a comment",
	},
	{
		pattern: regexp.MustCompile(
			`\b(proxy\.gol` + `ang\.org|sum\.gol` + `ang\.org|registry\.np` + `mjs\.org|registry\.yarn` + `pkg\.com|` +
				`py` + `pi\.org|files\.python` + `hosted\.org|crat` + `es\.io|ruby` + `gems\.org|deb\.deb` +
				`ian\.org)\b`),
		parts: []string{"ang.org", "mjs.org", "pkg.com", "py" + "pi.org", "hosted.org", "crat" +
			"es.io", "gems.org", "ian.org"},
		reason: "where packages come from is the machine's setting; a test that meets the network is a surprise",
	},
	{
		pattern: regexp.MustCompile(`(^|[\s"'=(:` + "`" + `])/(wo` + `rk|ro` + `ot|ho` + `me/[a-z]+)/`),
		parts:   []string{"/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/"},
		except:  []string{"guest/", "internal/hv/"}, // paths inside the guest
		reason:  "a path of one machine does not exist on the next",
	},
	{
		pattern: regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE ` + `KEY-----`),
		parts:   []string{"KEY-----"},
		reason:  "keys are made by the tests that need them",
	},
}

// checkWords lists the occurrences of a word. Files with a NUL byte are not text.
func checkWords(t *tree, w word) ([]string, error) {
	var out []string
	for _, name := range t.names {
		if slices.ContainsFunc(w.except, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		data, err := fs.ReadFile(t.fsys, name)
		if err != nil {
			return nil, fmt.Errorf("looking for words: %w", err)
		}
		has := func(part string) bool { return bytes.Contains(data, []byte(part)) }
		if bytes.IndexByte(data, 0) >= 0 || !slices.ContainsFunc(w.parts, has) || !w.pattern.Match(data) {
			continue
		}
		n := 0
		for line := range bytes.Lines(data) {
			n++
			if w.pattern.Match(line) {
				out = append(out, fmt.Sprintf("%s:%d: %s", name, n, bytes.TrimSpace(line)))
			}
		}
	}
	return out, nil
}

func TestWords(t *testing.T) {
	tr := theTree(t)
	for _, w := range words {
		found, err := checkWords(tr, w)
		if err != nil {
			t.Fatal(err)
		}
		report(t, fmt.Sprintf("%v stays out, since %s", w.pattern, w.reason), found)
	}
}

func TestWordRulesCatch(t *testing.T) {
	tr := small(t, map[string]string{
		"a.md":     "fine\n- TO" + "DO: later\n",
		"b.sh":     "curl https://py" + "pi.org/simple\ncurl https://notpy" + "pi.orgs\n",
		"c.md":     "see /wo" + "rk/main and a/wo" + "rk/b and https://x.test/wo" + "rk/\n",
		"guest/x":  "mkdir /ro" + "ot/.ssh\n",
		"bin.data": "\x00 TO" + "DO\n",
		"key.go":   "package a // -----BEGIN RSA PRIVATE " + "KEY-----\n",
	})
	for i, want := range [][]string{
		{"a.md:2: - TO" + "DO: later"},
		{"b.sh:1: curl https://py" + "pi.org/simple"},
		{"c.md:1: see /wo" + "rk/main and a/wo" + "rk/b and https://x.test/wo" + "rk/"},
		{"key.go:1: package a // -----BEGIN RSA PRIVATE " + "KEY-----"},
	} {
		got, err := checkWords(tr, words[i])
		if err != nil {
			t.Fatal(err)
		}
		expect(t, got, want...)
	}
}

// TestModuleGraph keeps the only version with which the graph resolves: older modules need the
// undivided genproto, whose packages later moved out of it.
func TestModuleGraph(t *testing.T) {
	mod, err := fs.ReadFile(theTree(t).fsys, "go.mod")
	if err != nil {
		t.Fatal(err)
	}
	const pin = "google.golang.org/genproto v0.0.0-20240213162025-012b6fc9bca9"
	if !bytes.Contains(mod, []byte("\t"+pin)) {
		t.Errorf("go.mod does not hold %s", pin)
	}
	for line := range strings.Lines(string(mod)) {
		replaced, dir, isReplace := strings.Cut(strings.TrimSpace(line), " => ")
		name, ours := strings.CutPrefix(dir, "./")
		if isReplace && (!ours || replaced != module+"/"+name || !slices.Contains(sdkModules, name)) {
			t.Errorf("go.mod: %q: only modules of this repository are replaced, so that programs contain released code",
				line)
		}
	}
}
