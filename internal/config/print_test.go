package config

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func printed(t interface{ Fatal(args ...any) }, v *Values) string {
	var b strings.Builder
	if err := v.Print(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPrintReportsOriginsAndMasksSecrets(t *testing.T) {
	v := mustLoad(t, sample, Sources{
		Flags: parsedFlags(t, sample, "--count=5"),
		Env:   environment(map[string]string{"SVC_WORD": "open sesame", "SVC_NAME": "it's #1"}),
		File:  writeFile(t, "SVC_AT='127.0.0.1:9'"),
	})
	want := strings.Join([]string{
		`SVC_NAME="it's #1" # env`,
		`SVC_COUNT=5 # flag`,
		`SVC_ON=false # default`,
		`SVC_WAIT=1m # default`,
		`SVC_ROOM=10KB # default`,
		`SVC_AT=127.0.0.1:9 # file`,
		`SVC_DIR=/tmp/x # default`,
		`SVC_WORD=******** # env`,
		`SVC_ALL= # default`,
	}, "\n") + "\n"
	if got := printed(t, v); got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestPrintReportsAFailedWrite(t *testing.T) {
	if err := mustLoad(t, sample, Sources{}).Print(brokenWriter{}); err == nil {
		t.Error("no error")
	}
}

// TestPrintedTextIsAConfiguration: what Print writes, the file parser reads back,
// whatever the values are.
func TestPrintedTextIsAConfiguration(t *testing.T) {
	table := Table{
		{Key: "SVC_A", Flag: "a", Kind: String, Help: "a"},
		{Key: "SVC_B", Flag: "b", Kind: Path, Help: "b"},
	}
	rapid.Check(t, func(t *rapid.T) {
		env := map[string]string{}
		for _, s := range table {
			if text := rapid.String().Draw(t, s.Key); checkLine(text) == nil {
				env[s.Key] = text
			}
		}
		v, err := Load(table, Sources{Env: environment(env)})
		if err != nil {
			t.Fatal(err)
		}
		entries, err := parseFile([]byte(printed(t, v)))
		if err != nil || len(entries) != len(table) {
			t.Fatalf("%d entries, %v", len(entries), err)
		}
		for _, e := range entries {
			if e.value != env[e.key] {
				t.Fatalf("%s is %q, was %q", e.key, e.value, env[e.key])
			}
		}
	})
}
