package input

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Open opens a file that a user named, which may be a pipe: the open blocks until another process
// writes it, or the context ends. Errors do not name the path: the caller does.
func Open(ctx context.Context, path string) (io.ReadCloser, error) {
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(path)
		done <- opened{f, err}
	}()
	select {
	case o := <-done:
		if at, ok := errors.AsType[*fs.PathError](o.err); ok {
			return nil, at.Err
		}
		if o.err != nil {
			return nil, o.err
		}
		return &contextFile{ctx: ctx, File: o.file}, nil
	case <-ctx.Done():
		go func() { // an open that succeeds later is closed
			if o := <-done; o.err == nil {
				_ = o.file.Close()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// contextFile is a file whose reads end with the context.
type contextFile struct {
	ctx context.Context // the one of Open
	*os.File
}

func (f *contextFile) Read(b []byte) (int, error) {
	if f.ctx.Err() != nil {
		return 0, context.Cause(f.ctx)
	}
	stop := context.AfterFunc(f.ctx, func() { _ = f.Close() }) // a blocked read of a pipe ends
	n, err := f.File.Read(b)
	if !stop() && err != nil {
		err = context.Cause(f.ctx)
	}
	return n, err
}

// ReadAll reads a file that a user named and that has at most so many bytes.
func ReadAll(ctx context.Context, path string, most int64) ([]byte, error) {
	f, err := Open(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("the file has more than %s", formatSize(most))
	}
	return b, err
}

// formatSize formats a number of bytes for users.
func formatSize(n int64) string {
	if n >= 1<<20 && n%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d bytes", n)
}
