package rig

import (
	"os"
	"strings"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	const stat = "12 (qemu) system-x86 (a b) S 1 12 12 0 -1 4194560 9 0 0 0 150 25 7 8 20 0 4 0 100 1 2"
	if d, err := parseStat(stat); err != nil || d != 1750*time.Millisecond {
		t.Errorf("processor time %v, %v", d, err)
	}
	for _, bad := range []string{"", "12 (x) S 1", strings.Replace(stat, "150", "x", 1)} {
		if d, err := parseStat(bad); err == nil {
			t.Errorf("%q: processor time %v", bad, d)
		}
	}
}

func TestMemory(t *testing.T) {
	if n, err := Memory(os.Getpid()); err != nil || n < 1<<20 || n > 1<<34 {
		t.Errorf("this test takes %d bytes, %v", n, err)
	}
	if n, err := parseKB("Name:\tx\nVmRSS:\t  1024 kB\nThreads:\t1\n", "VmRSS:", "status"); err != nil || n != 1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	for _, bad := range []string{"", "VmRSS: many kB\n", "VmHWM: 3 kB\n"} {
		if n, err := parseKB(bad, "VmRSS:", "status"); err == nil {
			t.Errorf("%q: %d bytes", bad, n)
		}
	}
}

func TestMachine(t *testing.T) {
	const stat = "cpu  100 10 30 9000 400 5 6 70 0 0\ncpu0 50 5 15 4500 200 2 3 35 0 0\n"
	if d, err := parseMachineStat(stat); err != nil || d != 1510*time.Millisecond {
		t.Errorf("processor time %v, %v", d, err)
	}
	for _, bad := range []string{"", "cpu 1 2 3 4 5 6", "cpu0 1 2 3 4 5 6 7", strings.Replace(stat, "30", "x", 1)} {
		if d, err := parseMachineStat(bad); err == nil {
			t.Errorf("%q: processor time %v", bad, d)
		}
	}
	if n, err := FreeMemory(); err != nil || n < 1<<20 || n > 1<<50 {
		t.Errorf("%d bytes of memory are free, %v", n, err)
	}
}
