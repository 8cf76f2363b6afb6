package authfile

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/authtest"
)

// The crash test runs a fixed sequence of changes in child processes, each of which kills itself
// before one of its steps. It prints what was acknowledged.
const (
	crashDir = "AUTHFILE_CRASH_DIR"
	crashAt  = "AUTHFILE_CRASH_AT"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := crashing(dir); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// crashing makes changes until its step comes.
func crashing(dir string) error {
	at, err := strconv.Atoi(os.Getenv(crashAt))
	if err != nil {
		return err
	}
	f, err := OpenDir(dir)
	if err != nil {
		return err
	}
	f.beforeStep = func(string) {
		if at--; at < 0 {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	}
	keys, err := f.Keys()
	if err != nil {
		return err
	}
	marks, err := f.OpenNonces()
	if err != nil {
		return err
	}
	if _, err := f.Ring(); err != nil {
		return err
	}
	fmt.Println("ring")
	ctx := context.Background()
	for i := range 3 {
		k := authtest.Key(strconv.Itoa(i))
		if err := keys.Create(ctx, k); err != nil {
			return err
		}
		fmt.Println("key", i)
		first, err := marks.Use(ctx, auth.Nonce{byte(i + 1)}, time.Now().Add(time.Hour))
		if err != nil || !first {
			return fmt.Errorf("mark: %t, %w", first, err)
		}
		fmt.Println("mark", i)
		if i == 1 {
			if err := keys.Delete(ctx, k); err != nil {
				return err
			}
			fmt.Println("deleted", i)
		}
	}
	return nil
}

// TestKilledAtEveryStep: whatever was acknowledged is there afterwards, and all opens.
func TestKilledAtEveryStep(t *testing.T) {
	for at := 0; ; at++ {
		if at > 200 {
			t.Fatal("the child never gets through")
		}
		dir := t.TempDir()
		said, killed := child(t, dir, at)
		f := openFolder(t, dir)
		keys, err := f.Keys()
		if err != nil {
			t.Fatalf("step %d: %v", at, err)
		}
		marks, err := f.OpenNonces()
		if err != nil {
			t.Fatalf("step %d: %v", at, err)
		}
		if _, err := f.Ring(); err != nil {
			t.Fatalf("step %d: %v", at, err)
		}
		judge(t, at, said, keys, marks)
		must(t, marks.Close())
		if !killed {
			if at < 30 || len(said) != 8 {
				t.Errorf("%d steps, said %v", at, said)
			}
			return
		}
	}
}

// child runs one child, and returns its output and whether it was killed.
func child(t *testing.T, dir string, at int) (said map[string]bool, killed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), crashDir+"="+dir, crashAt+"="+strconv.Itoa(at))
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		killed = true
	} else if err != nil {
		t.Fatalf("step %d: %v, %s", at, err, out)
	}
	said = map[string]bool{}
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		said[lines.Text()] = true
	}
	return said, killed
}

func judge(t *testing.T, at int, said map[string]bool, keys auth.KeyStore, marks auth.NonceStore) {
	t.Helper()
	for i := range 3 {
		_, there := keys.Get(strconv.Itoa(i))
		deleted := said[fmt.Sprint("deleted ", i)]
		if said[fmt.Sprint("key ", i)] && !there && !deleted && i != 1 {
			t.Errorf("step %d: key %d is lost", at, i)
		}
		if deleted && there {
			t.Errorf("step %d: key %d is back", at, i)
		}
		first, err := marks.Use(t.Context(), auth.Nonce{byte(i + 1)}, time.Now().Add(time.Hour))
		if err != nil || said[fmt.Sprint("mark ", i)] && first {
			t.Errorf("step %d: mark %d can be used again: %v", at, i, err)
		}
	}
}
