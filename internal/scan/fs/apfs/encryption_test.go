package apfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/apfs"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/apfstest"
	"github.com/buildyard/buildyard/internal/scan/fs/apfs/keybag"
)

var passwords = []string{"correct horse", "RS2D-8VQK-XXXX-1234-ABCD-4321"}

// encryptedFiles have every kind of content.
func encryptedFiles() []apfstest.File {
	list := append(some(), one("secret")...)
	return append(list,
		apfstest.File{Path: "large", Data: noise(7, 1<<20+1234)},
		apfstest.File{Path: "scattered", Data: noise(8, 90_000), Scattered: true},
		apfstest.File{Path: "fork", Data: text(300_000), Compression: 8},
		apfstest.File{Path: "attributed", Xattrs: map[string][]byte{"large": noise(9, 50_000)}})
}

// The files of an encrypted volume read as they were written, with each of its passwords.
func TestUnlock(t *testing.T) {
	snapshots := []apfstest.Snapshot{{Name: "s", Files: one("before")}}
	for name, v := range map[string]apfstest.Volume{
		"plain":       {},
		"half a key":  {HalfKey: true},
		"half keys":   {HalfKey: true, HalfWrapping: true},
		"other tweak": {TweakOffset: 5000},
		"small nodes": {NodeRecords: 3, Sensitive: true},
		"sealed":      {Sealed: true},
	} {
		v.Name, v.Passwords, v.Files, v.Snapshots = "Vault", passwords, encryptedFiles(), snapshots
		m, _ := write(t, apfstest.Container{Volumes: []apfstest.Volume{
			{Name: "other", Files: one("other")}, v, {Name: "third", Passwords: []string{"x"}, Files: one("third")},
		}})
		if bytes.Contains(m.b, []byte("scattered")) || bytes.Contains(m.b, noise(7, 64)) {
			t.Fatalf("%s: the image is not encrypted", name)
		}
		for _, password := range passwords {
			t.Run(name+", "+password, func(t *testing.T) {
				c, err := m.open()
				if err != nil {
					t.Fatal(err)
				}
				vault := c.Volumes()[1]
				if _, err := vault.FS(); !errors.Is(err, apfs.ErrEncrypted) {
					t.Errorf("locked: %v", err)
				}
				err = vault.Unlock(t.Context(), [][]byte{[]byte("wrong")}, keybag.NewBudget())
				if !errors.Is(err, keybag.ErrWrongKey) {
					t.Errorf("a wrong password: %v", err)
				}
				if err := vault.Unlock(t.Context(), [][]byte{[]byte("wrong"), []byte(password)},
					keybag.NewBudget()); err != nil {
					t.Fatal(err)
				}
				f, err := vault.FS()
				is(t, f, err, "secret")
				compare(t, f, v.Files)
				s, err := vault.SnapshotFS("s")
				is(t, s, err, "before")
				f, err = c.Volumes()[0].FS()
				is(t, f, err, "other")
				if _, err := c.Volumes()[2].FS(); !errors.Is(err, apfs.ErrEncrypted) {
					t.Errorf("the third volume: %v", err)
				}
			})
		}
	}
}

// A read of any length at any offset of an encrypted file returns its bytes.
func TestReadsOfEncrypted(t *testing.T) {
	want := noise(3, 20_000)
	m, _ := write(t, apfstest.Container{Volumes: []apfstest.Volume{
		{Passwords: []string{"p"}, Files: []apfstest.File{{Path: "f", Data: want, Scattered: true}}},
	}})
	c, err := m.open()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Volumes()[0].Unlock(t.Context(), [][]byte{[]byte("p")}, keybag.NewBudget()); err != nil {
		t.Fatal(err)
	}
	fsys, err := c.Volumes()[0].FS()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Open("f")
	if err != nil {
		t.Fatal(err)
	}
	r := f.(interface {
		ReadAt(p []byte, off int64) (int, error)
	})
	for off := 0; off < len(want); off += 487 {
		for _, n := range []int{1, 511, 512, 513, 4096, 5000} {
			n = min(n, len(want)-off)
			p := make([]byte, n)
			if got, err := r.ReadAt(p, int64(off)); got != n || err != nil || !bytes.Equal(p, want[off:off+n]) {
				t.Fatalf("%d bytes at %d: %d, %v", n, off, got, err)
			}
		}
	}
}

// Volumes that cannot be unlocked are refused with the reason.
func TestRefusedUnlock(t *testing.T) {
	for name, c := range map[string]struct {
		volume apfstest.Volume
		change func(m *image, l apfstest.Layout)
		want   string
	}{
		"no keys": {apfstest.Volume{Encrypted: true}, nil, "which are in hardware"},
		"keys of files": {
			apfstest.Volume{Passwords: passwords}, superblockOf(func(b []byte) { b[264] = 0 }), "which are in hardware",
		},
		"a change": {
			apfstest.Volume{Passwords: passwords}, superblockOf(func(b []byte) { b[976] = 1 }), "is being changed",
		},
		"another volume": {
			apfstest.Volume{Passwords: passwords}, superblockOf(func(b []byte) { b[240] = 1 }), "does not have its key",
		},
		"no keybag":       {apfstest.Volume{Passwords: passwords}, keybagField(1304, 0), "a keybag has 0 blocks"},
		"a large keybag":  {apfstest.Volume{Passwords: passwords}, keybagField(1304, 17), "a keybag has 17 blocks"},
		"keybag outside":  {apfstest.Volume{Passwords: passwords}, keybagField(1296, 1<<40), "outside"},
		"keybag of zeros": {apfstest.Volume{Passwords: passwords}, keybagField(1296, 0), "wrong checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			m, l := write(t, apfstest.Container{Volumes: []apfstest.Volume{c.volume}})
			if c.change != nil {
				c.change(m, l)
			}
			container, err := m.open()
			if err != nil {
				t.Fatal(err)
			}
			if err := container.Volumes()[0].Unlock(t.Context(), [][]byte{[]byte(passwords[0])},
				keybag.NewBudget()); err == nil ||
				!strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// superblockOf changes the superblock of the volume.
func superblockOf(change func(b []byte)) func(*image, apfstest.Layout) {
	return func(m *image, _ apfstest.Layout) {
		for n := range len(m.b) / apfstest.BlockSize {
			if b := m.block(uint64(n)); string(b[32:36]) == "APSB" {
				change(b)
				apfstest.Seal(b)
			}
		}
	}
}

// keybagField changes the place of the container's keybag.
func keybagField(at int, value uint64) func(*image, apfstest.Layout) {
	return func(m *image, l apfstest.Layout) {
		for _, n := range append(l.Checkpoints[:], 0) {
			b := m.block(n)
			binary.LittleEndian.PutUint64(b[at:], value)
			apfstest.Seal(b)
		}
	}
}

// Whatever is damaged in an encrypted volume, it is read to its end.
func TestDamagedEncryption(t *testing.T) {
	clean, _ := write(t, apfstest.Container{Volumes: []apfstest.Volume{
		{Passwords: passwords[:1], Files: some(), NodeRecords: 4},
	}})
	blocks, readable := len(clean.b)/apfstest.BlockSize, 0
	for n := range blocks {
		m := &image{b: bytes.Clone(clean.b)}
		copy(m.block(uint64(n))[100:], noise(uint64(n), 64))
		readable += readAll(m.b)
	}
	if readable < blocks/2 || readable == blocks {
		t.Errorf("%d of %d changed images were readable", readable, blocks)
	}
}
