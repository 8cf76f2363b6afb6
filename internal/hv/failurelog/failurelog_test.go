package failurelog

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestNewest: of several logs of a VM the newest, and none of a VM with a similar ID.
func TestNewest(t *testing.T) {
	dir := Dir(filepath.Join(t.TempDir(), "failed"))
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if text, err := dir.Newest("vm-1"); text != nil || err != nil {
		t.Errorf("without a directory: %q, %v", text, err)
	}
	for i, id := range []string{"vm-1", "vm-1", "vm-1-check", "vm"} {
		if _, err := dir.Write(id, at.Add(time.Duration(i)*time.Second), fmt.Sprint(id, i)); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]string{"vm-1": "vm-11", "vm-1-check": "vm-1-check2", "vm": "vm3", "v": ""} {
		if text, err := dir.Newest(id); string(text) != want || err != nil {
			t.Errorf("%s: %q, %v, want %q", id, text, err, want)
		}
	}
	if path, err := dir.Write("vm-1", at, "again"); err == nil {
		t.Errorf("a log was replaced: %s", path)
	}
}

// The oldest logs are removed first; other files stay.
func TestLogsAreBounded(t *testing.T) {
	tests := []struct {
		name       string
		size, made int
		kept       int
	}{
		{"few", 10, 50, 50},
		{"many", 10, 60, 50},
		{"large", 1 << 20, 20, 8},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			var want []string
			for i := range test.made {
				name := fmt.Sprintf("vm-%d.log", (i*7)%test.made) // not in the order of their names
				path := filepath.Join(dir, name)
				if err := os.WriteFile(path, make([]byte, test.size), 0o600); err != nil {
					t.Fatal(err)
				}
				age := time.Now().Add(time.Duration(i-test.made) * time.Minute)
				if err := os.Chtimes(path, age, age); err != nil {
					t.Fatal(err)
				}
				if i >= test.made-test.kept {
					want = append(want, name)
				}
			}
			if err := Dir(dir).prune(); err != nil {
				t.Fatal(err)
			}
			entries, err := os.ReadDir(dir)
			if err != nil {
				t.Fatal(err)
			}
			got := make([]string, 0, len(entries))
			for _, e := range entries {
				got = append(got, e.Name())
			}
			want = append(want, "notes")
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("kept %v, want %v", got, want)
			}
		})
	}
}
