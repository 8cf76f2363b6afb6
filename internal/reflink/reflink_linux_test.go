package reflink

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/internal/tools/xfstest"
)

// TestOnXFS runs what depends on clones where files can be cloned.
func TestOnXFS(t *testing.T) { xfstest.Run(t, "TestClone") }

// canClone reports whether the file system of temporary files can clone.
func canClone(t *testing.T) bool {
	t.Helper()
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	from, err := dir.Create("from")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	return CloneAt(from, dir, "to") == nil
}

// Without holes, zeros are written over a range and nothing outside it, and a write error is returned.
func TestWriteZeros(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const off, n = 3, 2*maxWriteBytes + 5
	want := bytes.Repeat([]byte{7}, off+n+4)
	_, err = f.Write(want)
	clear(want[off : off+n])
	if err := errors.Join(err, writeZeros(f, off, n)); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_ = f.Close()
	for name, write := range map[string]func(*os.File, int64, int64) error{
		"zeros": writeZeros, "a hole or zeros": ZeroRange,
	} {
		if err := write(f, off, n); err == nil {
			t.Errorf("%s were written to a closed file", name)
		}
	}
}

// TestRefusedClones: errors for files that cannot be cloned map to errors.ErrUnsupported, other errors do not.
func TestRefusedClones(t *testing.T) {
	for no, refused := range map[syscall.Errno]bool{
		unix.EXDEV: true, unix.EOPNOTSUPP: true, unix.EINVAL: true, unix.ENOTTY: true, unix.ENOSYS: true,
		unix.EPERM:  true,
		unix.ENOSPC: false, unix.EIO: false, unix.EDQUOT: false, unix.EROFS: false,
	} {
		err := cloneError(os.NewSyscallError("ioctl", no))
		if errors.Is(err, errors.ErrUnsupported) != refused || !refused && !errors.Is(err, no) {
			t.Errorf("%v became %v", no, err)
		}
	}
	if err := cloneError(nil); err != nil {
		t.Error(err)
	}
}

// TestClone: a clone has the bytes of its file and keeps them when that is written. A file that cannot be
// cloned is an error.
func TestClone(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	content := bytes.Repeat([]byte("content "), 4096)
	if err := os.WriteFile(from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{from + "x", to}, {from, filepath.Join(dir, "none", "to")}} {
		if err := CloneFile(c[0], c[1]); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s as %s: %v", c[0], c[1], err)
		}
	}
	err := CloneFile(from, to)
	if !canClone(t) {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
		return
	}
	if err := errors.Join(err, os.WriteFile(from, []byte("another"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the clone has %d bytes, %v", len(got), err)
	}
}

// TestCloneIntoMissingDirectory: a file that cannot be made is an error, and no file system that cannot clone.
func TestCloneIntoMissingDirectory(t *testing.T) {
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	from, err := dir.Create("from")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if err := CloneAt(from, dir, "none/to"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}
