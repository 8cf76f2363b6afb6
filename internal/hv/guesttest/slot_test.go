package guesttest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// childDir makes the test binary take a turn in this directory and keep it until
// its standard input ends.
const childDir = "BUILDYARD_TURN_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if _, err := (testSlots{dir, 2}).take(1); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("mine")
		_, _ = os.Stdin.Read(make([]byte, 1))
		return
	}
	os.Exit(m.Run())
}

// At no time are more slots in use than exist, and every caller gets its slots, also a caller that
// needs several or more than exist.
func TestSlotsAreBounded(t *testing.T) {
	q := testSlots{t.TempDir(), 3}
	var out, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 24 {
		wg.Go(func() {
			held, err := q.take(1 + i%4)
			if err != nil {
				t.Error(err)
				return
			}
			if want := min(1+i%4, 3); len(held) != want {
				t.Errorf("%d turns, want %d", len(held), want)
			}
			now := out.Add(int64(len(held)))
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			time.Sleep(time.Millisecond)
			out.Add(-int64(len(held)))
			if err := release(held); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most.Load() != 3 {
		t.Errorf("%d turns were out at a time, there are 3", most.Load())
	}
}

// What another process holds is not given out, and comes back when it is killed.
func TestSlotsOfAnotherProcess(t *testing.T) {
	q := testSlots{t.TempDir(), 2}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childDir+"="+q.dir)
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "mine\n" {
		t.Fatalf("the child says %q, %v", line, err)
	}
	one, err := q.take(1) // the other one is free
	if err != nil {
		t.Fatal(err)
	}
	both := make(chan error, 1)
	go func() {
		two, err := q.take(1)
		if err == nil {
			err = release(two)
		}
		both <- err
	}()
	select {
	case err := <-both:
		t.Fatalf("a third turn of two was given out: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // it was killed
	if err := <-both; err != nil {
		t.Error(err)
	}
	if err := release(one); err != nil {
		t.Error(err)
	}
}

func TestSlotOfAParentIsItsChildrens(t *testing.T) {
	n := &names{in: map[string]bool{}}
	for _, step := range []struct {
		name string
		want bool
	}{
		{"TestA", true},
		{"TestA", false},
		{"TestA/b", false},
		{"TestA/b/c", false},
		{"TestAB", true},
		{"TestB/x", true},
		{"TestB/y", true},
		{"TestB/x/y", false},
	} {
		if got := n.enter(step.name); got != step.want {
			t.Errorf("%s: %v", step.name, got)
		}
	}
	n.leave("TestB/x")
	if !n.enter("TestB/x/y") {
		t.Error("a test that has left is in")
	}
}

func TestVersionOf(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]bool{}
	for _, step := range []func() error{
		func() error { return os.WriteFile(dir+"/a", []byte("1"), 0o600) },
		func() error { return os.WriteFile(dir+"/a", []byte("2"), 0o600) },
		func() error { return os.Rename(dir+"/a", dir+"/b") },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		v, err := versionOf(dir)
		if err != nil || seen[v] {
			t.Errorf("%q again, %v", v, err)
		}
		seen[v] = true
	}
}
