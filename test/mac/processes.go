package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

// The roles of processes on a Mac.
const (
	roleAgent     = "agent"
	roleVM        = "VM"        // tart run
	roleForwarder = "forwarder" // buildnode forward
	roleCall      = "call"      // any other call of tart
	roleGuest     = "guest"     // the guest's system and its commands
)

// process is a process of a Mac.
type process struct {
	cliproc.Process
	role string
	args []string
}

func (p process) String() string {
	return fmt.Sprintf("%s %d (%.80s)", p.role, p.PID, strings.Join(p.args, " "))
}

// has reports whether the command line has an argument.
func (p process) has(arg string) bool { return slices.Contains(p.args, arg) }

// processes returns the processes of the Mac. Those are the ones whose command line or environment names its data
// directory; the directory's name is unique to the run.
func (m *mac) processes() (out []process) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, err := cliproc.Find(pid)
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || len(line) == 0 {
			continue
		}
		environment, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if !bytes.Contains(line, []byte(m.data)) && !bytes.Contains(environment, []byte(m.data+"/")) {
			continue
		}
		args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		if role := roleOf(args, pid == m.agent.PID(), bytes.Contains(environment, []byte("FAKE_GUEST_VM="))); role != "" {
			out = append(out, process{p, role, args})
		}
	}
	return out
}

// roleOf returns the role of a process; "" for a command of this run, such as join.
func roleOf(args []string, isAgent, inGuest bool) string {
	verb := ""
	if len(args) > 1 {
		verb = args[1]
	}
	switch program := filepath.Base(args[0]); {
	case isAgent:
		return roleAgent
	case inGuest:
		return roleGuest
	case program == "tart" && verb == "run":
		return roleVM
	case program == "tart":
		return roleCall
	case program == "buildnode" && verb == "forward":
		return roleForwarder
	}
	return ""
}

// find returns the first process of a role whose command line has all of the arguments.
func (m *mac) find(role string, args ...string) (process, bool) {
	for _, p := range m.processes() {
		if p.role == role && !slices.ContainsFunc(args, func(arg string) bool { return !p.has(arg) }) {
			return p, true
		}
	}
	return process{}, false
}

// leftovers returns what is on the Mac that belongs to no VM of its owner: processes except the agent, and directories
// of VMs, of unfinished clones and of saves.
func (m *mac) leftovers() (out []string) {
	for _, p := range m.processes() {
		if p.role != roleAgent {
			out = append(out, p.String())
		}
	}
	for _, dir := range []string{"tart/vms", "tart/tmp", "tart/buildyard-new", "tart/buildyard-removed", "vms", "saves"} {
		entries, _ := os.ReadDir(filepath.Join(m.data, dir)) // a directory that was not made has no entries
		for _, e := range entries {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}
