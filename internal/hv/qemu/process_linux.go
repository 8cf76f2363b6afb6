package qemu

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// machineUUID returns the value of -uuid in a NUL-separated command line.
func machineUUID(cmdline []byte) string {
	args := bytes.Split(cmdline, []byte{0})
	for i := range len(args) - 1 {
		if string(args[i]) == "-uuid" {
			return string(args[i+1])
		}
	}
	return ""
}

func pidsOf(uuid string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if args, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline")); err == nil &&
			machineUUID(args) == uuid {
			out = append(out, pid)
		}
	}
	return out, nil
}
