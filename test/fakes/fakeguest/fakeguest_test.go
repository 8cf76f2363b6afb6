package fakeguest

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func FuzzUnpack(f *testing.F) {
	if archive, err := Pack("."); err == nil {
		f.Add(archive)
	}
	f.Fuzz(func(t *testing.T, archive []byte) {
		dir := t.TempDir()
		inner := filepath.Join(dir, "inner")
		if err := os.Mkdir(inner, 0o700); err != nil {
			t.Fatal(err)
		}
		_ = Unpack(bytes.NewReader(archive), inner)
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
			t.Errorf("files outside: %v, %v", entries, err)
		}
	})
}

func TestRedirect(t *testing.T) {
	for arg, want := range map[string]string{
		"/sbin/shutdown": "B/shutdown", "sudo -n /sbin/shutdown -h now": "sudo -n B/shutdown -h now",
		"/usr/sbin/halt;/bin/nc x": "B/halt;B/nc x", "/usr/bin/ncat": "/usr/bin/ncat", "/bin/sh": "/bin/sh",
		"x=/usr/bin/sudo": "x=B/sudo",
	} {
		if got := Redirect([]string{arg}, "B"); got[0] != want {
			t.Errorf("%q: %q, want %q", arg, got[0], want)
		}
	}
}
