// Package guesttest is shared by the tests of real guests: it has the demo guest's disk, and slots,
// so that concurrent tests of all packages run at most as many guests as there are processors.
//
// It is test code that is imported by tests only.
//
// Invariant: a test that has its slot does not wait for another slot.
package guesttest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// tools are the programs that building and running the demo guest takes.
var tools = []string{"qemu-system-x86_64", "qemu-img", "dpkg-deb", "mke2fs", "debugfs", "sfdisk", "cpio"}

// Disk returns the path of the demo guest's disk, a qcow2 image that all tests share and must not
// write to. If it is not available, the test is skipped.
func Disk(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("boots real guests; not with -short")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			if _, err := os.Stat("/usr/sbin/" + tool); err != nil {
				t.Skipf("%s is not installed (guest/packages.txt lists what is needed)", tool)
			}
		}
	}
	path, err := disk()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// disk builds the disk once per version of its recipe.
var disk = sync.OnceValues(func() (string, error) {
	recipe, err := recipeDir()
	if err != nil {
		return "", err
	}
	version, err := versionOf(recipe)
	if err != nil {
		return "", fmt.Errorf("the recipe of the guest: %w", err)
	}
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	building, err := testSlots{dir: cache}.open("test-lock") // what others use is not built again under their hands
	if err != nil {
		return "", err
	}
	defer building.Close()
	if err := lock(building, syscall.LOCK_EX); err != nil {
		return "", err
	}
	path := filepath.Join(cache, "test-"+version+".qcow2")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(recipe, "build.sh"), "--password", "test", path).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the guest: %w\n%s", err, out)
	}
	return path, nil
})

// recipeDir finds the guest's recipe next to go.mod: tests run in their package's directory.
func recipeDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "guest"), nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("the guest's recipe is not there: no go.mod above the test's folder")
		}
		dir = up
	}
}

// versionOf hashes the files of a directory with their names.
func versionOf(dir string) (string, error) {
	sum, files := sha256.New(), os.DirFS(dir)
	err := fs.WalkDir(files, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := fs.ReadFile(files, path)
		fmt.Fprintf(sum, "%s %d\n%s", path, len(b), b)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))[:16], err
}

// cacheDir is where the user's demo guests are kept.
func cacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "buildyard", "guest")
	return dir, os.MkdirAll(dir, 0o755)
}
