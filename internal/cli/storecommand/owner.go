package storecommand

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// packagedDataDir is the data directory of the packages. It belongs to the user of the service.
const packagedDataDir = "/var/lib/buildyard/controller"

// checkOwner refuses to open the embedded store in a data directory as another user than its owner: the
// controller could not open files that this process creates. command is the command that was called.
func checkOwner(dataDir, command string) error {
	dir := EmbeddedDir(dataDir)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) && filepath.Clean(dataDir) == packagedDataDir {
		dir = packagedDataDir
	}
	return checkOwnerOf(dir, command, os.Geteuid())
}

// checkOwnerOf is checkOwner for a directory, which may be missing, and a user.
func checkOwnerOf(dir, command string, userID int) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(stat.Uid) == userID {
		return nil
	}
	owner := strconv.Itoa(int(stat.Uid))
	if u, err := user.LookupId(owner); err == nil {
		owner = u.Username
	}
	return fmt.Errorf("%s belongs to the user %s, who could not open files that another user creates there; "+
		"run it with the same flags as that user: runuser -u %s -- %s", dir, owner, owner, command)
}
