package fault

import (
	"errors"
	"io/fs"
	"testing"
	"time"
)

func TestCheckFile(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		failed, stat error
		kind, want   string
	}{
		"whole":          {nil, nil, "", ""},
		"broken off":     {broken, fs.ErrNotExist, "", ""},
		"half a file":    {broken, nil, "wrong: ", "has left its file"},
		"no file":        {nil, fs.ErrNotExist, "lost: ", "is not whole"},
		"a damaged file": {nil, broken, "lost: ", "is not whole"},
		"cannot be read": {broken, broken, "wrong: ", "has left its file"},
	} {
		var f findings
		checkFile("b", c.failed, c.stat, &f)
		expectOne(t, name, f, c.kind, c.want)
	}
}

// TestCheckRestored plants what may go wrong when a cloud goes back to a backup.
func TestCheckRestored(t *testing.T) {
	since := time.Now()
	runs := []record{{ID: "a", State: "Started", Since: since}}
	vm := []machine{{Instance: "a", What: "here", Running: true}}
	again := []record{{ID: "a", State: "Started", Since: since.Add(1)}}
	for name, c := range map[string]struct {
		ended      bool
		world      world
		kind, want string
	}{
		"runs on":     {false, world{Records: runs, Machines: vm}, "", ""},
		"record lost": {false, world{Machines: vm}, "lost: ", "is not listed"},
		"VM lost":     {false, world{Records: runs}, "lost: ", "has 0 VMs"},
		"two VMs":     {false, world{Records: runs, Machines: append(vm, vm[0])}, "lost: ", "has 2 VMs"},
		"started again": {
			false,
			world{Records: again, Machines: vm},
			"lost: ",
			"ran at the time of the backup, since",
		},
		"in Error": {false, world{
			Records: []record{{ID: "a", State: "Error", Since: since}}, Machines: vm,
		}, "lost: ", "it is Error"},
		"ended and found so":     {true, world{Records: []record{{ID: "a", State: "Error"}}}, "", ""},
		"ended and gone":         {true, world{}, "", ""},
		"ended and taken to run": {true, world{Records: runs}, "stuck: ", "is Started"},
		"ended and back": {
			true,
			world{Records: []record{{ID: "a", State: "Error"}}, Machines: vm},
			"orphan: ",
			"terminated after the backup",
		},
	} {
		var f findings
		checkRestored(runs, map[string]bool{"a": c.ended}, c.world, &f)
		expectOne(t, name, f, c.kind, c.want)
	}
}

// TestCheckMaintenance: only what was acknowledged is held against what is.
func TestCheckMaintenance(t *testing.T) {
	for _, c := range []struct {
		want, on bool
		lost     int
	}{{false, false, 0}, {true, true, 0}, {true, false, 1}, {false, true, 1}} {
		var f findings
		checkMaintenance(c.want, c.on, &f)
		if f.Lost != c.lost {
			t.Errorf("%+v: %d lost", c, f.Lost)
		}
	}
}
