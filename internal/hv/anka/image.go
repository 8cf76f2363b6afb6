package anka

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

const (
	importTimeout = time.Hour
	imagePrefix   = "buildyard-image-" // of the names of images
)

// image is a VM of the library that was imported from an archive, to be cloned and never to be started.
// Its record exists once the import is complete.
type image struct {
	Archive string // path
	Name    string // of the VM
}

// findImage returns the image of an archive, which need not be imported: its name depends on path,
// size and time of the file.
func findImage(archive string) (image, error) {
	info, err := os.Stat(archive)
	if err != nil {
		return image{}, err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%d\x00%d", archive, info.Size(), info.ModTime().UnixNano()))
	return image{Archive: archive, Name: imagePrefix + hex.EncodeToString(sum[:16])}, nil
}

// importImage returns the name of the VM with the content of an archive. One that was imported only in
// part is removed first.
func (d *Driver) importImage(ctx context.Context, cli program, archive string) (name string, err error) {
	i, err := findImage(archive)
	if err != nil {
		return "", err
	}
	defer d.lockImage(i.Name)()
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	lock, err := lockFile(ctx, d.imageFile(i.Name, lockSuffix))
	if err != nil {
		return "", err
	}
	defer lock.Close()

	var known image
	switch err := readJSON(d.imageFile(i.Name, recordSuffix), &known); {
	case err == nil && known == i:
		if _, err := cli.show(ctx, i.Name); !hasCode(err, codeNotFound) {
			return i.Name, err
		}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if err := cli.remove(ctx, i.Name); err != nil {
		return "", err
	}
	c := call{timeout: importTimeout, lock: lock, args: []string{"import", archive, i.Name}}
	if err := cli.ask(ctx, c, nil); err != nil {
		return "", fmt.Errorf("import %s: %w", archive, err)
	}
	return i.Name, writeJSON(d.imageFile(i.Name, recordSuffix), i)
}

func (d *Driver) imageFile(name, suffix string) string {
	return filepath.Join(d.opts.Dir, imagesDir, name+suffix)
}

// lockImage keeps other starts from importing the same image.
func (d *Driver) lockImage(name string) (unlock func()) {
	d.mu.Lock()
	l := d.images[name]
	if l == nil {
		l = new(sync.Mutex)
		d.images[name] = l
	}
	d.mu.Unlock()
	l.Lock()
	return l.Unlock
}

// removeUnusedImages removes the images whose archives do not exist any more or have changed. Clones of
// them keep what they share.
func (d *Driver) removeUnusedImages(ctx context.Context) error {
	entries, err := os.ReadDir(filepath.Join(d.opts.Dir, imagesDir))
	for _, e := range entries {
		name, isRecord := strings.CutSuffix(e.Name(), recordSuffix)
		if !isRecord || !strings.HasPrefix(name, imagePrefix) {
			continue
		}
		var i image
		if readErr := readJSON(d.imageFile(name, recordSuffix), &i); readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		if now, statErr := findImage(i.Archive); statErr == nil && now.Name == name {
			continue
		}
		removeErr := d.cli.remove(ctx, name)
		if removeErr == nil {
			removeErr = errors.Join(
				removeFile(d.imageFile(name, recordSuffix)), removeFile(d.imageFile(name, lockSuffix)))
		}
		err = errors.Join(err, removeErr)
	}
	return err
}
