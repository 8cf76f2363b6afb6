package host_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/agent/host"
)

func TestFacts(t *testing.T) {
	f := host.ReadFacts()
	if f.CPUs < 1 || f.MemoryMB < 64 || f.OS != runtime.GOOS || f.Arch != runtime.GOARCH {
		t.Errorf("got %+v", f)
	}
	if free := host.FreeMemoryMB(); free < 1 || free > f.MemoryMB {
		t.Errorf("%d MB free of %d", free, f.MemoryMB)
	}
}

func TestDisk(t *testing.T) {
	free, total, err := host.DiskSpace(t.TempDir())
	if err != nil || free <= 0 || total < free {
		t.Errorf("%d free of %d, %v", free, total, err)
	}
	if _, _, err := host.DiskSpace(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing path has disk space")
	}
}

func TestAllocatedCountsNoHoles(t *testing.T) {
	dir := t.TempDir()
	sparse := filepath.Join(dir, "sub", "sparse")
	if err := os.MkdirAll(filepath.Dir(sparse), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sparse, make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 1<<30); err != nil {
		t.Fatal(err)
	}
	if n := host.AllocatedBytes(dir); n < 100_000 || n > 10<<20 {
		t.Errorf("%d bytes allocated, want about 100000", n)
	}
	if n := host.AllocatedBytes(filepath.Join(dir, "none")); n != 0 {
		t.Errorf("%d bytes in a missing directory", n)
	}
}

// processorTime returns the processor time of this process so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestLoadOfThisProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("utilization is measured on Linux only")
	}
	var l host.LoadMeter
	start := time.Now()
	if cpu, ram := l.Measure(start, []int{os.Getpid(), 1 << 30}); cpu != 0 || ram <= 0 || ram > 1 {
		t.Errorf("first measure: cpu %v, ram %v", cpu, ram)
	}
	// On a busy machine a process may get no processor for long: only the time it got is compared.
	for sum, used := 0, processorTime(t); processorTime(t) < used+60*time.Millisecond; sum++ {
	}
	if cpu, _ := l.Measure(time.Now(), []int{os.Getpid()}); cpu <= 0 || cpu > 1 {
		t.Errorf("a busy process takes %v of the processors", cpu)
	}
}

func TestAddressTowards(t *testing.T) {
	if got := host.LocalAddressFor("http://127.0.0.1:8090"); got != "127.0.0.1" {
		t.Errorf("towards loopback: %q", got)
	}
	if got := host.LocalAddressFor("::"); got != "" {
		t.Errorf("towards nothing: %q", got)
	}
}
