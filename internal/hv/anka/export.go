package anka

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

const (
	exportTimeout = 6 * time.Hour
	maxNameBytes  = 255
)

// SourceVM is a stopped VM of this user's library, from which a template can be made. The zero value is
// none.
type SourceVM struct {
	Name       string
	CPUs       int   // 0 = anka does not show it
	MemoryMiB  int   // 0 = anka does not show it
	ImageBytes int64 // of its image, which its archive may exceed

	cli program
}

// FindVM returns a VM of this user's library by its name or UUID. One that is not stopped is refused. program
// is the path of anka; "" = the installed one.
func FindVM(ctx context.Context, program, name string) (SourceVM, error) {
	if name == "" || len(name) > maxNameBytes || strings.HasPrefix(name, "-") {
		return SourceVM{}, hv.RefusedError("%.80q is not the name of a VM of anka; see: anka list", name)
	}
	cli, err := newProgram(program)
	if err != nil {
		return SourceVM{}, err
	}
	vm, err := cli.show(ctx, name)
	if hasCode(err, codeNotFound) {
		return SourceVM{}, hv.RefusedError("anka has no VM %q; see: anka list", name)
	}
	if err != nil {
		return SourceVM{}, err
	}
	if err := checkStopped(name, vm.Status); err != nil {
		return SourceVM{}, err
	}
	return SourceVM{
		Name: name, CPUs: vm.CPUs, MemoryMiB: mebibytes(vm.RAM), ImageBytes: max(0, vm.ImageBytes), cli: cli,
	}, nil
}

// checkStopped refuses a VM whose image is not complete, and returns what to do.
func checkStopped(name, status string) error {
	switch status {
	case statusStopped:
		return nil
	case statusRunning:
		return hv.RefusedError("VM %q runs; shut it down first: anka stop %s", name, name)
	case statusSuspended:
		return hv.RefusedError("VM %q is suspended; start it and shut it down first: anka start %s, anka stop %s", name,
			name, name)
	case statusFailed:
		return hv.RefusedError("VM %q has failed; reset it first: anka stop --force %s", name, name)
	}
	return hv.RefusedError("anka shows VM %q as %s; want a stopped VM", name, printable(status))
}

// Export writes an archive of the VM, which must not exist yet. A canceled export may leave a part of it.
func (v SourceVM) Export(ctx context.Context, archive string) error {
	err := v.cli.ask(ctx, call{timeout: exportTimeout, args: []string{"export", v.Name, archive}}, nil)
	if err != nil {
		return err
	}
	info, err := os.Stat(archive)
	switch {
	case err != nil:
		return fmt.Errorf("anka export of VM %q has succeeded, but left no archive", v.Name)
	case !info.Mode().IsRegular() || info.Size() == 0:
		return fmt.Errorf("anka export of VM %q has succeeded, but its archive has no content", v.Name)
	}
	return nil
}

var memoryPattern = regexp.MustCompile(`^([1-9][0-9]{0,8})([MG])B?$`)

// mebibytes reads an amount of memory such as "6G"; 0 if it is none.
func mebibytes(text string) int {
	m := memoryPattern.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if m[2] == "G" {
		n *= 1024
	}
	if err != nil || n > hv.MaxMemoryMB {
		return 0
	}
	return n
}
