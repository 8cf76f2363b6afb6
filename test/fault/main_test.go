package fault

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

func TestParse(t *testing.T) {
	o, err := parse(nil, io.Discard)
	if err != nil || o.n != 50 || o.rate != 500 || o.seed == 0 || len(o.targets) != len(targets) {
		t.Errorf("defaults are %+v, %v", o, err)
	}
	o, err = parse([]string{"-n", "7", "-seed", "9", "-targets", "qemu,agent", "-json", "f"}, io.Discard)
	if err != nil || o.n != 7 || o.seed != 9 || o.json != "f" || len(o.targets) != 2 || o.targets[0].name != "qemu" {
		t.Errorf("options are %+v, %v", o, err)
	}
	for _, args := range [][]string{
		{"-n", "0"}, {"-n", "-1"}, {"-rate", "0"}, {"-targets", "disk"}, {"-targets", ""}, {"more"}, {"-seed", "x"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%v is taken", args)
		}
	}
}

func TestSimMachines(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"n1/vms/a.vm.json":      `{"VM":{"ID":"a","Status":"running","Labels":{"instance":"a"}}}`,
		"n2/vms/b.vm.json":      `{"VM":{"ID":"b","Status":"stopped","Labels":{"instance":"b"}}}`,
		"n2/vms/c.vm.json.part": `{"VM":`,
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found, err := simMachines(dir)
	if err != nil || len(found) != 2 {
		t.Fatalf("found %v, %v", found, err)
	}
	if found[0].Instance != "a" || !found[0].Running || found[1].Instance != "b" || found[1].Running {
		t.Errorf("found %v", found)
	}
	if found, err := simMachines(filepath.Join(dir, "none")); err != nil || len(found) != 0 {
		t.Errorf("without a directory: %v, %v", found, err)
	}
}

// TestLanes: targets with real guests never run at the same time, nor do the others, one
// that needs everything runs before them, and the results keep the order that was asked for.
func TestLanes(t *testing.T) {
	var mu sync.Mutex
	busy := map[bool]bool{}
	begun, first := 0, 0
	var list []target
	for i, real := range []bool{false, true, true, false} {
		alone := i == 3
		list = append(list, target{name: fmt.Sprint("t",
			i), real: real, alone: alone, cloud: func(context.Context, rig.Programs, string) (*rig.Cloud, error) {
			mu.Lock()
			if begun++; alone {
				first = begun
			}
			twice := busy[real]
			busy[real] = true
			mu.Unlock()
			if twice {
				t.Errorf("two targets of a lane run at the same time")
			}
			time.Sleep(10 * time.Millisecond)
			mu.Lock()
			busy[real] = false
			mu.Unlock()
			return nil, fmt.Errorf("%w: %d", rig.ErrSkip, i)
		}})
	}
	b := &bench{n: 1, dir: t.TempDir(), out: io.Discard}
	results := b.lanes(t.Context(), list)
	if first != 1 || begun != 4 {
		t.Errorf("the one that runs alone was the %d. of %d", first, begun)
	}
	for i, r := range results {
		if r.Target != fmt.Sprint("t", i) || r.Skipped != fmt.Sprintf("cannot run here: %d", i) {
			t.Errorf("result %d is %+v", i, r)
		}
	}
}

func TestPlanned(t *testing.T) {
	for _, c := range []struct{ share, n, want int }{{0, 50, 50}, {5, 50, 10}, {5, 20, 8}, {5, 3, 3}, {0, 1, 1}} {
		if got := (target{share: c.share}).planned(c.n); got != c.want {
			t.Errorf("one in %d of %d kills is %d, want %d", c.share, c.n, got, c.want)
		}
	}
}

func TestJoins(t *testing.T) {
	p := rig.NewProcess(t.TempDir(), "sim", "true")
	if n := joins(p); n != 0 {
		t.Errorf("without a log it has joined %d times", n)
	}
	line := `{"msg":"simulated nodes started"}` + "\n"
	if err := os.WriteFile(p.Log, []byte(line+"other\n"+line), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := joins(p); n != 2 {
		t.Errorf("it has joined %d times, want 2", n)
	}
}
