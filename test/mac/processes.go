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
		if pid, err := strconv.Atoi(e.Name()); err == nil && pid != os.Getpid() {
			if p, found := m.process(pid); found {
				out = append(out, p)
			}
		}
	}
	return out
}

// process returns the process with a PID, if it is one of the Mac.
func (m *mac) process(pid int) (process, bool) {
	p, err := cliproc.Find(pid) // before what it is is read, so that no other process with its PID is killed
	if err != nil {
		return process{}, false
	}
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil || len(line) == 0 {
		return process{}, false
	}
	environment, _ := os.ReadFile(filepath.Join(dir, "environ"))
	if !bytes.Contains(line, []byte(m.data)) && !bytes.Contains(environment, []byte(m.data+"/")) {
		return process{}, false
	}
	args := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	role := roleOf(args, pid == m.agent.PID(), bytes.Contains(environment, []byte("FAKE_GUEST_VM=")))
	return process{p, role, args}, role != ""
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

// vmDirs are the directories of a node's data with VMs, unfinished clones and saves.
var vmDirs = []string{"tart/vms", "tart/tmp", "tart/buildyard-new", "tart/buildyard-removed", "vms", "saves"}

// leftovers returns what is on the Mac that belongs to no VM of its owner: processes except the agent, and directories
// of VMs, of unfinished clones and of saves.
func (m *mac) leftovers() (out []string) {
	for _, p := range m.processes() {
		if p.role != roleAgent {
			out = append(out, p.String())
		}
	}
	for _, dir := range vmDirs {
		entries, _ := os.ReadDir(filepath.Join(m.data, dir)) // a directory that was not made has no entries
		for _, e := range entries {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}
