package input

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestWhole(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := ReadAll(t.Context(), path, 5); string(b) != "12345" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	if _, err := ReadAll(t.Context(), path, 4); err == nil ||
		!strings.HasSuffix(err.Error(), "the file has more than 4 bytes") {
		t.Errorf("got %v", err)
	}
	if _, err := ReadAll(t.Context(), "/dev/zero", 1<<20); err == nil || err.Error() != "the file has more than 1 MiB" {
		t.Errorf("got %v", err)
	}
	if _, err := ReadAll(t.Context(), path+"x", 4); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestPipes: a pipe is read to its end, and the read of one without a writer ends with the context.
func TestPipes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() { _ = os.WriteFile(path, []byte("12345"), 0o600) }()
	if b, err := ReadAll(t.Context(), path, 5); string(b) != "12345" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}
	ended := errors.New("ended")
	ctx, cancel := context.WithCancelCause(t.Context())
	go cancel(ended)
	if _, err := ReadAll(ctx, path, 5); !errors.Is(err, ended) {
		t.Errorf("without a writer: %v", err)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	w, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err = w.WriteString("12"); err != nil {
		t.Fatal(err)
	}
	f, err := Open(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 5)
	if n, err := f.Read(b); n != 2 || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	go cancel(ended)
	if _, err := f.Read(b); !errors.Is(err, ended) {
		t.Errorf("a silent writer: %v", err)
	}
}
