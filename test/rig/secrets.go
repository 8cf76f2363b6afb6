package rig

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Secrets are what no log may hold. The zero value is ready.
type Secrets struct {
	mu     sync.Mutex                  // guards the fields below
	noted  int                         // secrets
	kinds  map[string]string           // the text that is looked for -> kind of secret
	begins map[[shortest]byte][]string // the texts by how they begin: there may be many
}

// shortest is how long a secret has to be: what is shorter could be in a log by chance.
const shortest = 8

// Note adds a secret of a kind, such as "root token", and returns it. Its form in a header is a
// secret too.
func (s *Secrets) Note(kind, secret string) string {
	if len(secret) < shortest {
		return secret
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil {
		s.kinds, s.begins = map[string]string{}, map[[shortest]byte][]string{}
	}
	if s.kinds[secret] != "" {
		return secret
	}
	s.noted++
	s.add(kind, secret)
	for _, user := range []string{"", "root"} {
		s.add(kind+" in a header", base64.StdEncoding.EncodeToString([]byte(user+":"+secret)))
	}
	return secret
}

func (s *Secrets) add(kind, text string) {
	s.kinds[text] = kind
	begin := [shortest]byte([]byte(text))
	s.begins[begin] = append(s.begins[begin], text)
}

// Len returns how many secrets there are.
func (s *Secrets) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noted
}

// In returns the kinds of the secrets that a text holds.
func (s *Secrets) In(text []byte) (kinds []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := 0; i+shortest <= len(text); i++ {
		for _, secret := range s.begins[[shortest]byte(text[i:])] {
			if kind := s.kinds[secret]; bytes.HasPrefix(text[i:], []byte(secret)) && !slices.Contains(kinds, kind) {
				kinds = append(kinds, kind)
			}
		}
	}
	slices.Sort(kinds)
	return kinds
}

// Search reads every log below a directory and returns which contain a secret: the name of the
// file, the line, and the kind, never the secret.
func (s *Secrets) Search(dir string) (found []string, files int, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // it is going away
			return nil
		}
		if err != nil || !d.Type().IsRegular() || !isLog(path) {
			return err
		}
		files++
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		more, err := s.searchFile(path, name)
		found = append(found, more...)
		return err
	})
	return found, files, err
}

// isLog reports whether a file is one that programs write for people to read.
func isLog(path string) bool {
	return strings.HasSuffix(path, ".log") || strings.Contains(path, "/central-logs/") ||
		strings.Contains(path, "/files/logs/")
}

// mostFound bounds the findings that are reported per file.
const mostFound = 3

func (s *Secrets) searchFile(path, name string) (found []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	in := bufio.NewReaderSize(f, 1<<20)
	for no := 1; len(found) < mostFound; no++ {
		line, err := in.ReadBytes('\n')
		for _, kind := range s.In(line) {
			found = append(found, fmt.Sprintf("%s:%d holds a secret: %s", name, no, kind))
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return found, err
		}
	}
	return found, nil
}
