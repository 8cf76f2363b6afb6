package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// whole returns a stream that is a valid backup.
func whole(sectors int) []byte {
	data := bytes.Repeat([]byte("sector!!"), sectors*sectorSize/8)
	sum := sha256.Sum256(data)
	return append(data, sum[:]...)
}

func TestSum(t *testing.T) {
	good := whole(3)
	changed := slices.Clone(good)
	changed[700] ^= 1
	for name, tc := range map[string]struct {
		data []byte
		ok   bool
	}{
		"whole": {good, true}, "empty": {nil, false}, "only a checksum": {whole(0), true},
		"a changed byte":  {changed, false},
		"without its end": {good[:len(good)-1], false}, "without a sector": {good[:len(good)-sectorSize], false},
		"without its checksum":  {good[:3*sectorSize], false},
		"with something behind": {append(slices.Clone(good), 0), false},
	} {
		sum := NewChecksumWriter()
		if _, err := io.Copy(sum, iotest.OneByteReader(bytes.NewReader(tc.data))); err != nil {
			t.Fatal(err)
		}
		if err := sum.Err(); (err == nil) != tc.ok || (err != nil && !errors.Is(err, ErrIncomplete)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b")
	read := func() string {
		data, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if names, _ := filepath.Glob(path + ".*"); len(names) > 0 {
			t.Errorf("left behind: %v", names)
		}
		return string(data)
	}
	if _, err := WriteFile(path, iotest.TimeoutReader(iotest.HalfReader(bytes.NewReader(whole(9)))),
		KeepExisting); !errors.Is(err, iotest.ErrTimeout) || read() != "" {
		t.Errorf("a stream that broke: %v, wrote %d bytes", err, len(read()))
	}
	if _, err := WriteFile(path, bytes.NewReader(whole(9)[:900]), KeepExisting); !errors.Is(err, ErrIncomplete) ||
		read() != "" {
		t.Errorf("a stream that ended early: %v, wrote %d bytes", err, len(read()))
	}
	sum, err := WriteFile(path, bytes.NewReader(whole(2)), KeepExisting)
	if err != nil || read() != string(whole(2)) {
		t.Fatalf("%v, wrote %d bytes", err, len(read()))
	}
	if want := sha256.Sum256(whole(2)[:2*sectorSize]); sum.Digest() != fmt.Sprintf("%x", want) ||
		sum.Size() != 2*sectorSize+32 {
		t.Errorf("digest %s, size %d", sum.Digest(), sum.Size())
	}
	if _, err := WriteFile(path, bytes.NewReader(whole(3)), KeepExisting); !errors.Is(err, fs.ErrExist) ||
		read() != string(whole(2)) {
		t.Errorf("over a file that is there: %v, it has %d bytes", err, len(read()))
	}
	if err := renameIntoPlace(filepath.Join(t.TempDir(), "part"), path, KeepExisting); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file that has just appeared: %v", err)
	}
	if _, err := WriteFile(path, bytes.NewReader(whole(3)), ReplaceExisting); err != nil || read() != string(whole(3)) {
		t.Errorf("replacing: %v, it has %d bytes", err, len(read()))
	}
	if got, err := VerifyFile(path); err != nil || got.Size() != int64(len(whole(3))) {
		t.Errorf("verify: %v", err)
	}
}

func TestPeriodic(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		var log bytes.Buffer
		p := PeriodicBackup{
			Dir: dir, Interval: time.Hour, KeepCount: 3, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Open: func(context.Context) (io.ReadCloser, error) {
				if away.Load() {
					return nil, errors.New("no store")
				}
				return io.NopCloser(bytes.NewReader(whole(1))), nil
			},
		}
		run := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			synctest.Wait()
			return func() { cancel(); <-done }
		}
		count := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := present(p); len(got) != want {
				t.Errorf("%d backups, want %d: %v", len(got), want, got)
			}
		}
		theirs := []string{"buildyard-1.backup", "buildyard-before-the-move.backup"}
		for _, name := range theirs {
			if err := errors.Join(os.MkdirAll(dir, 0o700),
				os.WriteFile(filepath.Join(dir, name), nil, 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		stop := run()
		count(1)
		time.Sleep(time.Hour + time.Second)
		count(2)
		stop()
		time.Sleep(10 * time.Minute)
		stop = run()
		count(2) // a restart makes no backup before it is due
		time.Sleep(51 * time.Minute)
		count(3)
		oldest := present(p)[0]
		away.Store(true)
		time.Sleep(time.Hour)
		count(3)
		if !strings.Contains(log.String(), "no store") {
			t.Error("a failure is not in the log")
		}
		away.Store(false)
		time.Sleep(2 * time.Minute)
		count(3)
		if slices.Contains(present(p), oldest) {
			t.Error("the oldest backup is still there")
		}
		stop()
		if err := os.WriteFile(filepath.Join(dir, oldest+".1"+partSuffix), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		run()()
		for _, name := range theirs {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Errorf("a file that is not of the periodic backups is gone: %v", err)
			}
		}
		if parts, _ := filepath.Glob(filepath.Join(dir, "*"+partSuffix)); len(parts) > 0 {
			t.Errorf("what a killed backup left is still there: %v", parts)
		}
	})
}

// present lists the periodic backups that are not dated in the future.
func present(p PeriodicBackup) []string {
	names, _ := p.listBackups(time.Now())
	return names
}

// TestBackupsOfTheFuture: a file with a date in the future stays, does not count, and is named in
// the log; the backup that was just taken stays.
func TestBackupsOfTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := PeriodicBackup{
			Dir: t.TempDir(), Interval: time.Hour, KeepCount: 1, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(whole(1))), nil },
		}
		future := filepath.Join(p.Dir, "buildyard-20990101T000000Z.backup")
		if err := os.WriteFile(future, whole(2), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := p.makeBackup(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := filepath.Join(p.Dir, time.Now().UTC().Format(nameLayout))
			if names := present(p); len(names) != 1 || NewestBackup(p.Dir) != want {
				t.Errorf("backups %v, the newest is %s, want %s", names, NewestBackup(p.Dir), want)
			}
			if wait := p.untilNext(time.Now()); wait != time.Hour {
				t.Errorf("the next is due in %s", wait)
			}
			time.Sleep(time.Hour)
		}
		if _, err := os.Stat(future); err != nil || !strings.Contains(log.String(), future) {
			t.Errorf("of the future: %v, log: %s", err, log.String())
		}
	})
}
