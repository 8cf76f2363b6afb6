package referencetest

import "testing"

func TestReplaceSection(t *testing.T) {
	const page = "# Page\n\nIntro.\n\n## One\n\nold\n\n## Two\n\nlast\n"
	for _, c := range []struct{ heading, text, want string }{
		{"One", "old", page},
		{"One", "new\nlines", "# Page\n\nIntro.\n\n## One\n\nnew\nlines\n\n## Two\n\nlast\n"},
		{"Two", "new", "# Page\n\nIntro.\n\n## One\n\nold\n\n## Two\n\nnew\n"},
	} {
		got, err := replaceSection([]byte(page), c.heading, c.text)
		if err != nil || string(got) != c.want {
			t.Errorf("%s: %q, %v", c.heading, got, err)
		}
	}
	if _, err := replaceSection([]byte(page), "Three", "x"); err == nil {
		t.Error("a heading that is not there was accepted")
	}
}

func TestDifference(t *testing.T) {
	if got := difference([]byte("a\nb"), []byte("a\nc")); got != `line 2 is "b", want "c"` {
		t.Error(got)
	}
	if got := difference([]byte("a"), []byte("a\nc")); got != "1 lines, want 2" {
		t.Error(got)
	}
}
