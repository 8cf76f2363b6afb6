package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCollect(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"a/b.go": `package a
type tank struct{ level int }
func (t *tank) fill() error { return errors.New("tank is full") }
func (t *tank) check() error { return farm.Invalid("level-max", "is too high") }
func flags() { f.StringVar(&o.Name, "name", "", "name of the tank"); f.StringVar(&o.Kind, "tank-kind", "", help) }
var m = metric.GaugeFamily("tank_level", "Level of the tank", nil)
`,
		"a/b_test.go":              "package a\nfunc TestX() {}\n",
		"test/x/x.go":              "package x\ntype ignored int\n",
		"internal/portal/p.html":   "<p>No tanks.</p>{{.Name}}<b>{{.X}}</b>",
		"api/openapi.yaml":         "paths:\n  summary: List tanks\n  description: {type: string}\n",
		"internal/tools/x/file.go": "package x\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	names, texts, err := collect(dir)
	if err != nil {
		t.Fatal(err)
	}
	list := func(samples []sample) string {
		var out []string
		for _, s := range samples {
			out = append(out, s.kind+" "+s.text)
		}
		return strings.Join(out, ", ")
	}
	want := "package a, file b.go, type tank, field tank.level, method fill, method check, function flags"
	if got := list(names); got != want {
		t.Errorf("names: %s, want %s", got, want)
	}
	want = "error tank is full, error level-max: is too high, help name of the tank, metric Level of the tank, API " +
		"List tanks, portal No tanks."
	if got := list(texts); got != want {
		t.Errorf("texts: %s, want %s", got, want)
	}
}

func TestDrawRepeats(t *testing.T) {
	var a, b, c strings.Builder
	for to, seed := range map[*strings.Builder]uint64{&a: 1, &b: 1, &c: 2} {
		if err := run(to, "../../registry", seed, 40); err != nil {
			t.Fatal(err)
		}
	}
	if a.String() != b.String() || a.String() == c.String() {
		t.Error("the table does not depend on the seed alone")
	}
	if n := strings.Count(a.String(), "\n"); n < 80 {
		t.Errorf("%d lines", n)
	}
}
