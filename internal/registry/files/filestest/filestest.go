// Package filestest provides the registry's file server in the process of a test, with the interface that the
// controller uses.
//
// It is not a server: it does not listen, and checks no permissions.
//
// Invariant: all its responses come from the real file store, unless it is away.
package filestest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"testing"

	"github.com/buildyard/buildyard/internal/registry/files"
)

// Server is the file server.
type Server struct {
	*files.Store
	Dir  string      // where the files lie
	Away atomic.Bool // it refuses changes
}

// Open opens one that ends with the test.
func Open(t testing.TB) *Server {
	t.Helper()
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err := files.Open(files.Options{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &Server{Store: s, Dir: dir}
}

var errAway = errors.New("away")

// UploadFile stores a file.
func (s *Server) UploadFile(_ context.Context, name string, content []byte) error {
	if s.Away.Load() {
		return errAway
	}
	_, err := s.StoreFile(files.Upload{Name: name, Body: bytes.NewReader(content), Size: -1})
	return err
}

// DownloadFile returns a file.
func (s *Server) DownloadFile(_ context.Context, name string, _ int64) ([]byte, error) {
	in, err := s.OpenFile(name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}

// RemoveFile removes a file.
func (s *Server) RemoveFile(_ context.Context, name string) error {
	if s.Away.Load() {
		return errAway
	}
	return s.Remove(name)
}
