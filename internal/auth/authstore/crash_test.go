package authstore

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/authtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/store/etcd"
)

// crashDir makes the test binary change stores in this directory until it is killed.
const crashDir = "AUTHSTORE_CRASH_DIR"

var (
	ctxOfMain = context.Background()
	ends      []func() // what the tests of this process have opened
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		if err := crashing(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	code := m.Run()
	for _, end := range slices.Backward(ends) {
		end()
	}
	os.Exit(code)
}

// openDir opens the stores of a directory.
func openDir(ctx context.Context, dir string) (*Stores, func() error, error) {
	b, err := etcd.StartEmbedded(ctx, etcd.EmbeddedOptions{Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	tables := NewTables()
	st, err := store.Open(ctx, b, store.Options{Tables: tables.All()})
	if err != nil {
		return nil, nil, err
	}
	s, err := Open(ctx, st, tables, slog.New(slog.DiscardHandler))
	return s, func() error { return errors.Join(st.Close(), b.Close()) }, err
}

// crashing changes everything there is, and prints each time what was acknowledged.
func crashing(dir string) error {
	ctx := context.Background()
	s, _, err := openDir(ctx, dir)
	if err != nil {
		return err
	}
	until, err := strconv.ParseInt(os.Getenv("AUTHSTORE_CRASH_UNTIL"), 10, 64)
	if err != nil {
		return err
	}
	fmt.Println("sealed", s.Signer().Sign("crash", nil))
	for i := 0; ; i++ {
		k := authtest.Key(fmt.Sprint(i))
		if err := s.Keys().Create(ctx, k); err != nil {
			return err
		}
		fmt.Println("key", i)
		first, err := s.Nonces().Use(ctx, markOf(i), time.Unix(until, 0))
		if err != nil || !first {
			return fmt.Errorf("mark %d: %t, %w", i, first, err)
		}
		fmt.Println("mark", i)
		if i%3 == 0 {
			if err := s.Keys().Delete(ctx, k); err != nil {
				return err
			}
			fmt.Println("deleted", i)
		}
		if i%5 == 0 {
			if err := s.Grants(registry).Change(ctx, setResources("large", 400+i)); err != nil {
				return err
			}
			fmt.Println("large", 400+i)
		}
		if i == 7 {
			if err := s.ring.rotateKeys(ctx); err != nil {
				return err
			}
		}
	}
}

func markOf(i int) auth.Nonce { return auth.Nonce{byte(i), byte(i >> 8)} }

// TestKilled: whatever was acknowledged is there after the process was killed.
func TestKilled(t *testing.T) {
	for _, after := range []int{3, 25, 60} {
		dir, until := t.TempDir(), time.Now().Add(time.Hour).Unix()
		said := killed(t, dir, until, after)
		s, stop, err := openDir(t.Context(), dir)
		must(t, err)
		large := 0
		for _, line := range said {
			what, value, _ := strings.Cut(line, " ")
			n, _ := strconv.Atoi(value)
			_, there := s.Keys().Get(value)
			switch what {
			case "sealed":
				if _, err := s.Signer().Verify("crash", value, time.Hour); err != nil {
					t.Errorf("what was signed before: %v", err)
				}
			case "key":
				if !there && n%3 != 0 {
					t.Errorf("key %d is lost", n)
				}
			case "deleted":
				if there {
					t.Errorf("key %d is back", n)
				}
			case "mark":
				if first, err := s.Nonces().Use(t.Context(), markOf(n), time.Unix(until, 0)); first || err != nil {
					t.Errorf("mark %d can be used again: %v", n, err)
				}
			case "large":
				large = n
			}
		}
		got := s.Grants(farm.ServiceRegistry).Grants().Resources["large"]
		if len(got) != large && len(got) != large+5 && (large != 0 || len(got) != 400) {
			t.Errorf("%d rights, %d were acknowledged", len(got), large)
		}
		must(t, stop())
	}
}

// killed runs a child until it has printed a number of lines.
func killed(t *testing.T, dir string, until int64, after int) (said []string) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashDir+"="+dir, fmt.Sprintf("AUTHSTORE_CRASH_UNTIL=%d", until))
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if len(said) == after {
			must(t, child.Process.Kill())
		}
	}
	if err := child.Wait(); err == nil || len(said) < after {
		t.Fatalf("the child ended by itself (%v) after %q", err, said)
	}
	return said
}
