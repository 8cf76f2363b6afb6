package stepcache

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestLoadReturnsWhatWasSaved(t *testing.T) {
	c := Open(filepath.Join(t.TempDir(), "new", "cache"), MaxBytes)
	if _, ok := c.Load("a"); ok {
		t.Fatal("an entry in a directory that does not exist")
	}
	for _, data := range [][]byte{nil, []byte("x"), bytes.Repeat([]byte("steps"), 1<<16)} {
		if err := c.Save("a", data); err != nil {
			t.Fatal(err)
		}
		if got, ok := c.Load("a"); !ok || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes, %v, want %d", len(got), ok, len(data))
		}
	}
	if _, ok := c.Load("b"); ok {
		t.Fatal("an entry of another key")
	}
	if err := os.Rename(c.path("a"), c.path("b")); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Load("b"); ok {
		t.Fatal("the entry of another key under this name")
	}
}

// An entry with any changed, missing or additional byte is ignored.
func TestDamagedEntriesAreIgnored(t *testing.T) {
	c := Open(t.TempDir(), MaxBytes)
	if err := c.Save("key", bytes.Repeat([]byte{1, 2, 3}, 100)); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(c.path("key"))
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, raw []byte) {
		if err := os.WriteFile(c.path("key"), raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := c.Load("key"); ok {
			t.Errorf("%s: loaded", what)
		}
	}
	for i := range whole {
		changed := bytes.Clone(whole)
		changed[i] ^= 0x10
		try(fmt.Sprintf("byte %d", i), changed)
		try(fmt.Sprintf("cut at %d", i), whole[:i])
	}
	try("longer", append(bytes.Clone(whole), 0))
	if err := os.Remove(c.path("key")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(c.path("key"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Load("key"); ok {
		t.Error("a directory was loaded")
	}
}

// The least recently used entries are removed above the limit, other files never.
func TestPrune(t *testing.T) {
	dir := t.TempDir()
	c := Open(dir, 1000)
	other := filepath.Join(dir, "other")
	if err := os.WriteFile(other, make([]byte, 4000), 0o600); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 300) // takes as much on the disk
	for i := range noise {
		noise[i] = byte(i * i * 7 >> 3)
	}
	for i := range 6 {
		key := fmt.Sprint(i)
		if err := c.Save(key, noise); err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(time.Duration(i-100) * time.Hour)
		if err := os.Chtimes(c.path(key), old, old); err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			continue
		}
		if _, ok := c.Load("1"); i > 1 && !ok {
			t.Fatalf("entry 1, which was used last, is gone after %d", i)
		}
	}
	if _, ok := c.Load("0"); ok {
		t.Error("the oldest entry is still there")
	}
	if _, ok := c.Load("5"); !ok {
		t.Error("the newest entry is gone")
	}
	if _, err := os.Stat(other); err != nil {
		t.Error(err)
	}
	left := filepath.Join(dir, tempPrefix+"1")
	if err := os.WriteFile(left, noise, 0o600); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * maxWriteTime)
	if err := errors.Join(os.Chtimes(left, old, old), c.Save("last", noise)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed process left is still there")
	}
	if err := Open(dir, 100).Save("large", noise); err != nil {
		t.Fatal(err)
	}
	if _, ok := c.Load("large"); ok {
		t.Error("an entry above the limit was kept")
	}
}

func FuzzDecode(f *testing.F) {
	c := Open(f.TempDir(), MaxBytes)
	if err := c.Save("key", []byte("data")); err != nil {
		f.Fatal(err)
	}
	raw, err := os.ReadFile(c.path("key"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		if data, ok := decode(raw, "key"); ok && len(data) > maxDataBytes {
			t.Fatalf("%d bytes", len(data))
		}
	})
}
