package catalog

import (
	"strings"
)

// patternTable decides by its name whether a file is wanted. Nearly every file of a tree is looked
// up here, so a look-up takes at most two map accesses.
type patternTable struct {
	byName            map[string][]int // indexes into extractors
	byExtension       map[string][]int
	byDir             []dirPattern
	wantsSymlinks     []bool // of each extractor: links too
	programExtractors []int
	companionReaders  []CompanionReader
	extractors        []Extractor
}

// dirPattern selects the files of directories with a name.
type dirPattern struct {
	suffix    string // of the path of the directory: its name and a slash
	extractor int
}

func newPatternTable(extractors []Extractor) *patternTable {
	c := &patternTable{byName: map[string][]int{}, byExtension: map[string][]int{}, extractors: extractors}
	for i, e := range extractors {
		claim := e.Patterns()
		for _, n := range claim.Names {
			c.byName[n] = append(c.byName[n], i)
		}
		for _, x := range claim.Extensions {
			c.byExtension[x] = append(c.byExtension[x], i)
		}
		for _, d := range claim.Dirs {
			c.byDir = append(c.byDir, dirPattern{d + "/", i})
		}
		if claim.Executables {
			c.programExtractors = append(c.programExtractors, i)
		}
		c.wantsSymlinks = append(c.wantsSymlinks, claim.Symlinks)
		if r, ok := e.(CompanionReader); ok {
			c.companionReaders = append(c.companionReaders, r)
		}
	}
	return c
}

// matchName returns the extractors that want a file, except those of programs.
func (c *patternTable) matchName(path, base string, link bool) []int {
	var out []int
	add := func(candidates []int) {
		for _, i := range candidates {
			if (!link || c.wantsSymlinks[i]) && c.extractors[i].FileRequired(path) {
				out = append(out, i)
			}
		}
	}
	add(c.byName[base])
	if dot := strings.LastIndexByte(base, '.'); dot >= 0 {
		add(c.byExtension[toLower(base[dot:])])
	}
	for i := range c.byDir {
		if strings.HasSuffix(path[:len(path)-len(base)], c.byDir[i].suffix) {
			add([]int{c.byDir[i].extractor})
		}
	}
	return out
}

// toLower lowers a short name, which it nearly always is already.
func toLower(s string) string {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return strings.ToLower(s)
		}
	}
	return s
}

// programLikelihood is how likely a file is a program, by its name.
type programLikelihood int

const (
	notProgram         programLikelihood = iota
	maybeProgram                         // a program when its permissions include execution
	likelyProgram                        // a program or a library whatever its permissions
	minProgramBytes    = 512             // bytes of the smallest file that is read
	sharedLibraryInfix = ".so."
)

// classifyProgram classifies a base name. Files with any but a few extensions are data, unless the text
// after the dot is a version or a word with a dash ("node-v22.1", "protoc-gen.linux-amd64").
func classifyProgram(base string) programLikelihood {
	dot := strings.LastIndexByte(base, '.')
	if dot <= 0 {
		return maybeProgram
	}
	switch ext := toLower(base[dot:]); ext {
	case ".exe", ".dll", ".so", ".dylib", ".node":
		return likelyProgram
	case ".bin", ".run", ".out", ".test", ".":
		return maybeProgram
	default:
		if strings.Contains(base, sharedLibraryInfix) {
			return likelyProgram
		}
		c := ext[1]
		if '0' <= c && c <= '9' || strings.ContainsAny(ext, "-_") {
			return maybeProgram
		}
		return notProgram
	}
}
