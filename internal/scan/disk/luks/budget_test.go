package luks

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
)

// All containers of a scan share one budget: one that would take more than is left is not tried.
func TestBudget(t *testing.T) {
	for _, name := range []string{"luks1.img", "luks2-lvm.img"} {
		b := treetest.Unpacked(t, "testdata/"+name+".zst")
		c, err := Open(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		keys, attempt := [][]byte{[]byte("secret")}, c.slots[0].work()
		left := &Budget{left: work{attempt.passes * 3 / 2, attempt.iterations * 3 / 2}}
		if _, err := c.Unlock(t.Context(), keys, left); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		rest := *left
		if _, err := c.Unlock(t.Context(), keys, left); !errors.Is(err, errBudget) || *left != rest {
			t.Errorf("%s, again: %v, %+v is left of %+v", name, err, *left, rest)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := c.Unlock(ctx, keys, NewBudget()); !errors.Is(err, context.Canceled) {
			t.Errorf("%s, canceled: %v", name, err)
		}
	}
}

// An attempt takes the memory of all passes, and every hash of the keys that it derives and merges.
func TestWork(t *testing.T) {
	s := keySlot{
		kdf:     derivation{kind: kdfArgon2id, iterations: 4, memoryKiB: 64},
		areaKey: 64, keyBytes: 64, stripes: 4000, hash: "sha256",
		digest: digest{derivation{kind: kdfPBKDF2, hash: "sha256", iterations: 1000}, make([]byte, 33)},
	}
	if got, want := s.work(), (work{passes: 256, iterations: 4000*2 + 1000*2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	s.kdf = derivation{kind: kdfPBKDF2, hash: "sha512", iterations: 500}
	if got, want := s.work(), (work{iterations: 4000*2 + 1000*2 + 500}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
