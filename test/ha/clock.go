package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/test/rig"
)

// clockFileSetting is the environment variable with the file that has the offset of a program's clock in
// seconds. Programs of the usual build ignore it.
const clockFileSetting = "BUILDYARD_TEST_CLOCK_FILE"

// The place in package time where the wall clock is read, and what is there instead.
const (
	nowBody        = "\tsec, nsec, mono := runtimeNow()\n"
	shiftedNowBody = nowBody + "\tsec += clockShift.Load()\n"
)

// clockSource is added to package time: a goroutine reads the offset ten times a second. It uses what
// package time may import.
const clockSource = `package time

import (
	"sync/atomic"
	"syscall"
)

var clockShift atomic.Int64

func init() {
	path, ok := syscall.Getenv("` + clockFileSetting + `")
	if !ok {
		return
	}
	go func() {
		for {
			clockShift.Store(readClockShift(path))
			Sleep(100 * Millisecond)
		}
	}()
}

func readClockShift(path string) (seconds int64) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer syscall.Close(fd)
	var text [32]byte
	n, _ := syscall.Read(fd, text[:])
	sign := int64(1)
	for i := range max(n, 0) {
		switch c := text[i]; {
		case c == '-':
			sign = -1
		case c >= '0' && c <= '9':
			seconds = seconds*10 + int64(c-'0')
		}
	}
	return sign * seconds
}
`

// writeClockOverlay writes the changed files of package time, and the list of them for the compiler.
func writeClockOverlay(ctx context.Context, dir string) (list string, err error) {
	root, err := rig.Output(ctx, "", "go", "env", "GOROOT")
	if err != nil {
		return "", err
	}
	original := filepath.Join(root, "src", "time", "time.go")
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	if strings.Count(string(text), nowBody) != 1 {
		return "", errors.New("package time of this compiler reads its clock in another way: adapt clock.go")
	}
	changed := strings.Replace(string(text), nowBody, shiftedNowBody, 1)
	replacements := map[string]string{}
	for target, content := range map[string]string{
		original: changed, filepath.Join(root, "src", "time", "clockshift.go"): clockSource,
	} {
		file := filepath.Join(dir, filepath.Base(target))
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			return "", err
		}
		replacements[target] = file
	}
	raw, err := json.Marshal(map[string]any{"Replace": replacements})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, raw, 0o600)
}

// buildShifted builds the programs of this repository and the etcd server of the embedded store with a clock that can
// be set.
func buildShifted(ctx context.Context, p rig.Programs, dir string) (programs, error) {
	if err := rig.MakeDir(dir); err != nil {
		return programs{}, err
	}
	overlay, err := writeClockOverlay(ctx, dir)
	if err != nil {
		return programs{}, err
	}
	build := func(packages ...string) error {
		_, err := rig.Output(ctx, p.Root(), "env", append([]string{
			"CGO_ENABLED=0", "go", "build", "-trimpath", "-overlay", overlay, "-o", dir + "/",
		}, packages...)...)
		return err
	}
	if err := build("./cmd/buildyard", "./cmd/buildnode", "go.etcd.io/etcd/server/v3"); err != nil {
		return programs{}, fmt.Errorf("build programs whose clock can be set: %w", err)
	}
	return programs{p.At(dir), filepath.Join(dir, "server")}, nil
}
