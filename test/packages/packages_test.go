package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseUnit(t *testing.T) {
	tree := t.TempDir()
	for name, text := range map[string]string{
		"usr/lib/systemd/system/a.service": "[Service]\nUser=u\nGroup=g\nEnvironment=A=1\n# Environment=B=2\n" +
			"EnvironmentFile=-/etc/a.env\nExecStart=/usr/bin/a run --x=1\nKillMode=process\n",
		"usr/lib/systemd/system/b.service": "[Service]\nUser=u\n",
		"etc/a.env":                        "# C=3\n\nD=4\n",
	} {
		file := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	u, err := parseUnit(tree, "a.service")
	if err != nil {
		t.Fatal(err)
	}
	_, got, _ := strings.Cut(strings.Join(u.chroot("/tree", u.command...), " "), `exec chroot "$@" /tree `)
	const want = "--userspec=u:g /tree /usr/bin/env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin A=1 D=4 /usr/bin/a run --x=1"
	if got != want || u.kill != "process" {
		t.Errorf("got %q, %q", got, u.kill)
	}
	if _, err := parseUnit(tree, "b.service"); err == nil {
		t.Error("a unit without a command")
	}
}

func TestSameModules(t *testing.T) {
	const output = "x: go1.26.3\n\tpath\tx\n\tmod\tgithub.com/buildyard/buildyard\t(devel)\t\n" +
		"\tdep\texample.test/a\tv1.0.0\th1:x=\n\tdep\texample.test/b\tv1.0.0\n" +
		"\t=>\texample.test/c\tv2.0.0+incompatible\th1:y=\n" +
		"\tdep\tgithub.com/buildyard/buildyard/api\tv0.1.0\n\t=>\t./api\t(devel)\t\n\tbuild\t-compiler=gc\n"
	urls := []string{
		"pkg:golang/std@1.26.3", "pkg:golang/example.test/a@v1.0.0", "pkg:golang/example.test/c@v2.0.0%2Bincompatible",
		"pkg:golang/github.com/buildyard/buildyard/api@1.2.0-abc",
	}
	if err := sameModules(output, urls); err != nil {
		t.Error(err)
	}
	for i := 1; i < len(urls); i++ {
		if sameModules(output, slices.Delete(slices.Clone(urls), i, i+1)) == nil {
			t.Errorf("a bill without %s is accepted", urls[i])
		}
	}
	if sameModules(output, append(urls, "pkg:golang/example.test/d@v1.0.0")) == nil {
		t.Error("a bill with another module is accepted")
	}
}

func TestSameFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	long := strings.Repeat("x", 1<<20)
	a := write("a", long+"y")
	if n, err := sameFile(a, write("b", long+"y")); err != nil || n != 1<<20+1 {
		t.Errorf("%d, %v", n, err)
	}
	for _, text := range []string{long, long + "z", long + "yy", ""} {
		if _, err := sameFile(a, write("c", text)); err == nil {
			t.Errorf("a file of %d bytes is accepted", len(text))
		}
	}
}
