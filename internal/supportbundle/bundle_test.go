package supportbundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// entriesOf reads an archive.
func entriesOf(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	entries := map[string]string{}
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return entries
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || h.Mode != 0o600 {
			t.Fatalf("%s: mode %o, %v", h.Name, h.Mode, err)
		}
		entries[h.Name] = string(text)
	}
}

func text(s string) func() ([]byte, error) { return func() ([]byte, error) { return []byte(s), nil } }

// TestSecrets: a known secret is in no form in the archive, whatever entry or error has it.
func TestSecrets(t *testing.T) {
	const secret = `a "root" token: +/%&<`
	var out bytes.Buffer
	b := New(&out, Options{Dir: "bundle", Time: time.Unix(0, 0), Secrets: []string{secret, "abc", "planted-in-a-log"}})
	for name, content := range map[string]string{
		"plain.txt": "token " + secret + " here",
		"json.json": `{"value":"a \"root\" token: +/%\u0026\u003c"}`,
		"url.txt":   "http://host/?t=a+%22root%22+token%3A+%2B%2F%25%26%3C",
		"basic.txt": "Authorization: Basic cm9vdDphICJyb290IiB0b2tlbjogKy8lJjw=",
		"log.txt":   "first planted-in-a-log\nsecond\n",
		"guess.txt": `{"vnc_password":"never seen before","n":1}`,
	} {
		b.Add(name, text(content))
	}
	b.Add("failed.txt", func() ([]byte, error) { return []byte("so far"), errors.New("no access with " + secret) })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	entries := entriesOf(t, out.Bytes())
	for name, content := range entries {
		for _, form := range []string{"root", "planted", "never seen", "cm9vdDph"} {
			if strings.Contains(content, form) {
				t.Errorf("%s has a secret: %s", name, content)
			}
		}
	}
	if got := entries["bundle/log.txt"]; got != "first ********\nsecond\n" {
		t.Errorf("log: %q", got)
	}
	if got := entries["bundle/problems.txt"]; got != "failed.txt: no access with ********\n" {
		t.Errorf("problems: %q", got)
	}
	if got := entries["bundle/failed.txt"]; got != "so far" || len(entries) != 8 {
		t.Errorf("%d entries, failed.txt is %q", len(entries), got)
	}
}

// TestLimits: a long entry loses its beginning, and what is beyond the limit of the archive is named.
func TestLimits(t *testing.T) {
	var out bytes.Buffer
	b := New(&out, Options{Dir: "bundle", MaxBytes: MaxEntryBytes + reservedBytes + 100})
	b.Add("long.log", text(strings.Repeat("x", MaxEntryBytes)+"the end"))
	b.Add("too much.txt", text(strings.Repeat("y", 101)))
	b.Add("../small.txt", text("small"))
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	entries := entriesOf(t, out.Bytes())
	long := entries["bundle/long.log"]
	if len(long) != MaxEntryBytes || !strings.HasSuffix(long, "the end") || entries["bundle/small.txt"] != "small" {
		t.Errorf("long.log has %d bytes, small.txt %q", len(long), entries["bundle/small.txt"])
	}
	want := "long.log: the first 7 bytes are left out\ntoo much.txt: left out: the limit of the archive ("
	if got := entries["bundle/problems.txt"]; !strings.HasPrefix(got, want) {
		t.Errorf("problems: %q", got)
	}
	if len(entries) != 3 {
		t.Errorf("%d entries", len(entries))
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestFullDisk(t *testing.T) {
	b := New(fullDisk{}, Options{})
	b.Add("a.txt", text("a"))
	if err := b.Close(); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("error %v", err)
	}
}

// FuzzMask: a known secret never survives masking in its plain form.
func FuzzMask(f *testing.F) {
	f.Add("secret-value", "before secret-value after")
	f.Add("****", "*****")
	f.Add(`a"b\c`, `a"b\c`)
	f.Fuzz(func(t *testing.T, secret, content string) {
		trimmed := strings.TrimSpace(secret)
		if len(trimmed) < minSecretBytes || strings.Contains(trimmed, "*") {
			return // the mask itself has asterisks
		}
		got := string(newMasker([]string{secret}).known.Replace(content + trimmed + content))
		if strings.Contains(got, trimmed) {
			t.Errorf("%q is left in %q", trimmed, got)
		}
	})
}
