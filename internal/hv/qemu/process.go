package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

// errProcessGone reports that the process no longer runs.
var errProcessGone = errors.New("the QEMU process has exited")

// qemuUserID is the user and group of QEMU where no user was made for it. No other program has this
// number: Debian, systemd, directory services and container images do not assign 65520 to 65531.
const qemuUserID = 65525

// credential returns the user that QEMU runs as; nil means the user of this process.
func credential(name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		if name != "" {
			return nil, fmt.Errorf("run as %q: only root can run QEMU as another user", name)
		}
		return nil, nil
	}
	lookup := name
	if name == "" {
		lookup = "buildyard"
	}
	u, err := user.Lookup(lookup)
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown && name == "" {
		return qemuUserCredential()
	}
	if err != nil {
		return nil, fmt.Errorf("find the user to run QEMU as: %w", err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("user %s: %w", lookup, err)
	}
	if uid == 0 || gid == 0 {
		return nil, fmt.Errorf("user %s is root: QEMU must run as an unprivileged user", lookup)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid), Groups: deviceGroups()}, nil
}

// qemuUserCredential returns the credential of qemuUserID, unless a user or group has that number.
func qemuUserCredential() (*syscall.Credential, error) {
	id := strconv.Itoa(qemuUserID)
	if u, err := user.LookupId(id); err == nil {
		return nil,
			fmt.Errorf("user ID %s for QEMU already belongs to user %s: create a user buildyard for QEMU", id,
				u.Username)
	}
	if g, err := user.LookupGroupId(id); err == nil {
		return nil,
			fmt.Errorf("group ID %s for QEMU already belongs to group %s: create a user buildyard for QEMU",
				id, g.Name)
	}
	return &syscall.Credential{Uid: qemuUserID, Gid: qemuUserID, Groups: deviceGroups()}, nil
}

// deviceGroups returns the group of /dev/kvm, so that an unprivileged QEMU can open it.
func deviceGroups() []uint32 {
	info, err := os.Stat("/dev/kvm")
	if err != nil || info.Mode().Perm()&0o060 != 0o060 {
		return nil
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Gid != 0 {
		return []uint32{st.Gid}
	}
	return nil
}

// takeLock locks a VM's lock file for a process that is about to be started. The lock belongs to
// the open file: QEMU inherits it and holds it until it ends in any way. It returns errLocked when
// such a process is alive.
func takeLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errLocked
	}
	return nil, fmt.Errorf("lock: %w", err)
}

// lockWithin takes the lock as soon as it is free, at most d from now. A process whose leader has
// ended may hold it for a moment more, and so may one that another goroutine has just forked.
func lockWithin(ctx context.Context, dir string, d time.Duration) (*os.File, error) {
	for end := time.Now().Add(d); ; {
		f, err := takeLock(dir)
		if !errors.Is(err, errLocked) || time.Now().After(end) {
			return f, err
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

var errLocked = errors.New("a QEMU process has locked the VM directory")

// findProcess looks for the QEMU of a machine UUID in the process table.
func findProcess(uuid string) (process, bool) {
	pids, err := pidsOf(uuid)
	if err != nil {
		return process{}, false
	}
	for _, pid := range pids {
		if ticks, err := startTicks(pid); err == nil {
			return process{PID: pid, StartTicks: ticks, UUID: uuid}, true
		}
	}
	return process{}, false
}

// startTicks returns when a live process was started, in the unit of cliproc.Process.
func startTicks(pid int) (uint64, error) {
	p, err := cliproc.Find(pid)
	return p.StartTime, err
}

// isAlive reports whether exactly this process still runs. It does not check the command line, which
// a process that is just starting does not have yet.
func (p process) isAlive() bool { return p.identity().IsAlive() }

// kill ends exactly this process immediately.
func (p process) kill() error { return p.identity().Kill() }

func (p process) identity() cliproc.Process {
	return cliproc.Process{PID: p.PID, StartTime: p.StartTicks}
}
