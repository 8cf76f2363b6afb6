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
	if n, err := parseStatus("Name:\tx\nVmRSS:\t  1024 kB\nThreads:\t1\n"); err != nil || n != 1<<20 {
		t.Errorf("%d bytes, %v", n, err)
	}
	for _, bad := range []string{"", "VmRSS: many kB\n", "VmHWM: 3 kB\n"} {
		if n, err := parseStatus(bad); err == nil {
			t.Errorf("%q: %d bytes", bad, n)
		}
	}
}
