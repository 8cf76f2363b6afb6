package buildyard

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/cli"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/store/backup"
)

// TestFullDataDisk: a controller on a full disk refuses changes with a sentence, answers reads,
// reports the problem to operators, and accepts changes when there is space again.
func TestFullDataDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	data := filepath.Join(dir, "c")
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", data, "tmpfs", 0, "size=96m,mode=0700"); err != nil {
		t.Skipf("no small file system can be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(data, unix.MNT_DETACH) })
	s, stop := runController(t, &ControllerService{Stderr: io.Discard, WithRegistry: true}, dir,
		map[string]string{"disk-alarm": "10GiB"})
	defer stop()
	client := &apiClient{base: s.URL()}
	group := func(name string) error {
		return client.send(t.Context(), http.MethodPost, "/api/v1/group", map[string]string{"name": name}, nil)
	}
	if err := group("one"); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(data, "filler")
	file, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1 << 20; size >= 4<<10; {
		if _, err := file.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	const sentence = "The disk of the data directory is full: changes are refused until there is free space"
	if err := group("two"); err == nil || err.Error() != sentence {
		t.Errorf("a change is answered %v", err)
	}
	if code, body := get(t, s.URL()+"/readyz"); code != http.StatusServiceUnavailable ||
		!strings.Contains(body, sentence) {
		t.Errorf("readyz: %d, %s", code, body)
	}
	var groups []api.Group
	if err := client.get(t.Context(), "/api/v1/group", &groups); err != nil || len(groups) != 1 {
		t.Errorf("reading: %v, %v", groups, err)
	}
	var status api.ControllerStatus
	if err := client.get(t.Context(), "/api/v1/status", &status); err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, a := range status.ActiveAlarms {
		names += a.Name + " "
	}
	if !strings.Contains(names, api.AlarmStoreFull) || !strings.Contains(names, api.AlarmDataDisk) {
		t.Errorf("alarms: %q", names)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); group("three") != nil; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("changes are refused although there is space again")
		}
	}
}

// TestDamagedStoreNamesItsRemedy: the start of a controller ends with one line that names the file,
// and the command that restores the newest complete backup.
func TestDamagedStoreNamesItsRemedy(t *testing.T) {
	dir, backups := t.TempDir(), t.TempDir()
	s, stop := runController(t, &ControllerService{Stderr: io.Discard, WithRegistry: true}, dir,
		map[string]string{"disk-alarm": "10GiB"})
	newest := filepath.Join(backups, "buildyard-20260102T000000Z.backup")
	stream, _, err := s.store.Snapshot(t.Context())
	if err == nil {
		_, err = backup.WriteFile(newest, stream, backup.KeepExisting)
		_ = stream.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(backups, "buildyard-20260103T000000Z.backup"), bytes.Repeat([]byte("x"), 4096),
		0o600); err != nil {
		t.Fatal(err)
	}
	stop()
	path := filepath.Join(dir, "c", "store", "etcd", "member", "snap", "db")
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = file.WriteAt([]byte("damage"), 4096+64)
		_ = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second start reports the same
		fs := pflag.NewFlagSet("up", pflag.ContinueOnError)
		cli.AddFlags(fs, config.ControllerTable)
		for flag, value := range map[string]string{
			"listen-addr": "127.0.0.1:0", "data-dir": filepath.Join(dir, "c"), "log-level": "error",
			"registry": "http://127.0.0.1:1", "backup-dir": backups,
		} {
			if err := fs.Set(flag, value); err != nil {
				t.Fatal(err)
			}
		}
		again := &ControllerService{Stderr: io.Discard}
		if err := again.ParseFlags(config.Sources{Flags: fs}); err != nil {
			t.Fatal(err)
		}
		err := again.Open(t.Context())
		_ = again.Close()
		want := "buildyard restore " + newest + " --data-dir " + filepath.Join(dir, "c") + " --force"
		if err == nil || !strings.Contains(err.Error(), path+" is damaged") || !strings.HasSuffix(err.Error(), want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("the start says %v, want %q", err, want)
		}
	}
}
