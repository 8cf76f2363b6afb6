package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// sample is a page with every form; ~ stands for a backtick.
const sample = `# The page

[there](other.md#two-words), [gone](gone.md), [no anchor](#nothing), [web](https://example.com/x), ~[code](x.md)~

<!-- docs-test: setup
start_cloud
-->

## Two ~words~ (twice)

<!-- docs-test: skip takes an hour -->
~~~sh
sleep 3600
~~~

<!-- docs-test: output ^b$ -->

~~~sh
echo b
~~~

  ~~~sh
  echo c
  ~~~

~~~text
no command
~~~

<!-- docs-test: skip -->
~~~bash
x
~~~

<!-- docs-test: later -->

<!-- docs-test: skip why -->
text
`

func parseSample(path string) *page {
	return parsePage(path, strings.ReplaceAll(sample, "~", "`"))
}

func TestParsePage(t *testing.T) {
	p := parseSample("a.md")
	var got []string
	for _, b := range p.blocks {
		got = append(got, strings.Join([]string{b.text, b.skip}, "|"))
	}
	if want := "start_cloud| sleep 3600|takes an hour echo b| echo c|"; strings.Join(got, " ") != want {
		t.Errorf("blocks %q, want %s", got, want)
	}
	if !p.blocks[0].hidden || p.blocks[2].output == nil || p.blocks[1].line != 13 {
		t.Errorf("%+v", p.blocks)
	}
	if p.anchors["two-words-twice"] != 1 || len(p.links) != 3 {
		t.Errorf("anchors %v, links %v", p.anchors, p.links)
	}
	want := []string{
		"needs a reason", "must be of the language sh", `unknown docs-test comment "later"`, "no sh block follows",
	}
	if len(p.problems) != len(want) {
		t.Fatalf("problems %q", p.problems)
	}
	for i, text := range want {
		if !strings.Contains(p.problems[i], text) {
			t.Errorf("problem %q, want %q", p.problems[i], text)
		}
	}
}

func TestCheckLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "other.md"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := parseSample("a.md")
	if err := os.WriteFile(filepath.Join(dir, "a.md"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	other := parsePage("other.md", "## Two words\n## Two words\n")
	if other.anchors["two-words-1"] != 1 {
		t.Errorf("anchors %v", other.anchors)
	}
	got := p.checkLinks(dir, map[string]*page{"a.md": p, "other.md": other})
	if len(got) != 2 || !strings.Contains(got[0], "file not found: gone.md") ||
		!strings.Contains(got[1], "anchor not found: a.md#nothing") {
		t.Errorf("%q", got)
	}
}

func TestUnnamedLanguage(t *testing.T) {
	const text = "```\necho\n```\n"
	if p := parsePage("docs/a.md", text); len(p.problems) != 1 ||
		!strings.Contains(p.problems[0], "must name its language") {
		t.Errorf("%q", p.problems)
	}
	if p := parsePage("ARCHITECTURE.md", text); len(p.problems) != 0 {
		t.Errorf("%q", p.problems)
	}
}

func TestCheckBlocks(t *testing.T) {
	p := parsePage("a.md", "```sh\necho\n"+strings.Repeat("x", maxColumns+1)+"\n```\n")
	if got := p.checkBlocks(); len(got) != 1 || !strings.HasPrefix(got[0], "3: ") {
		t.Errorf("%q", got)
	}
}

// TestPlay runs a page whose last block is not reached.
func TestPlay(t *testing.T) {
	p := parsePage("a.md", strings.ReplaceAll(`
~~~sh
a=1; sleep 100 &
~~~
<!-- docs-test: output ^1$ -->
~~~sh
echo $a
~~~
<!-- docs-test: output other -->
~~~sh
echo this
~~~
<!-- docs-test: skip why -->
~~~sh
exit 9
~~~
~~~sh
ls | grep it-broke
~~~
~~~sh
echo c
~~~
`, "~", "`"))
	var out strings.Builder
	r := &report{out: &out}
	s := &sandbox{env: []string{"PATH=" + os.Getenv("PATH")}}
	if err := s.play(t.Context(), r, p, filepath.Join(t.TempDir(), "p"), defaultLimit); err != nil {
		t.Fatal(err)
	}
	if r.passed != 2 || r.failed != 3 || r.skipped != 1 || r.blocks != 6 || !strings.Contains(out.String(), "not run") {
		t.Errorf("%+v\n%s", r, out.String())
	}
}

func TestSum(t *testing.T) {
	for _, c := range []struct {
		r    report
		want bool
	}{
		{report{passed: 9, skipped: 1, blocks: 10}, true},
		{report{passed: 8, skipped: 2, blocks: 10}, false},
		{report{passed: 9, failed: 1, blocks: 10}, false},
	} {
		c.r.out = io.Discard
		if got := c.r.sum(); got != c.want {
			t.Errorf("%+v: %v", c.r, got)
		}
	}
}
