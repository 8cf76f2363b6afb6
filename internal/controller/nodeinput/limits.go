// Package nodeinput bounds the input from nodes, before any other code reads it. Each function
// takes one body of the node API. It returns an error that names the field when an identifying
// value is too long or cannot be printed, and when a list is too long. It cuts texts that are for
// people, makes them printable, and clamps numbers.
//
// It also converts reports to the form of the records. It does not decide whether a node may report
// something: whether an instance is placed on the node is up to the controller. Credentials and the
// output of scripts are left as they are: the former are only compared, the latter are bytes that are
// cut when they are converted or stored.
//
// Invariant: after a call without an error every text is printable and within its limit, and every
// number is finite and within its range. docs/security.md lists the limits.
package nodeinput

import (
	"strings"
	"unicode"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/sanitize"
)

// Limits of texts, in bytes.
const (
	MaxID      = 64        // an id, a claim, a hash
	MaxName    = 255       // a name, an address, a label
	MaxField   = 1 << 10   // a field of a description
	MaxMessage = 4 << 10   // an error text; its end is kept
	maxLists   = 256 << 10 // all texts in a list of cached versions or devices
)

// Limits of lists.
const (
	MaxHeld     = 10_000 // VMs of a node, acknowledgments, details
	maxFills    = 1024   // VMs whose disks are being filled
	MaxStatuses = 10_000 // in one report
	MaxGroups   = 64     // of a node
	MaxPorts    = 64     // of a VM

	maxCached    = 1000 // cached versions, and devices
	maxAbilities = 64
	maxErrors    = 10 // of a script
	maxKept      = 16 // names of fields in a join
	maxExcluded  = 64 // peers
)

// Limits of numbers.
const (
	MaxCapacity = 1000    // VMs of a node
	MaxVCPUs    = 4096    // of a node, and of a VM on it
	MaxCores    = 1 << 16 // more is not plausible, and sums must not overflow
	MaxMemoryMB = 1 << 30

	maxBytes  = 1 << 52 // of a disk, a version, a download
	maxPort   = 1<<16 - 1
	maxPID    = 1<<31 - 1
	maxNo     = 1 << 53 // of a status
	maxCount  = 1 << 20
	maxSecond = 1 << 31
	maxCode   = 1<<31 - 1 // of a script
)

// name is a value that identifies something.
type name struct {
	field, value string
	most         int
}

// refuse returns an error for the first name that is too long or cannot be printed.
func refuse(names ...name) error {
	for _, n := range names {
		if len(n.value) > n.most || strings.ContainsFunc(n.value, unprintable) {
			return farm.Invalid(n.field, "must be printable text of at most %d bytes", n.most)
		}
	}
	return nil
}

func unprintable(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }

// tooLong returns an error for a list with more than most elements.
func tooLong[T any](field string, list []T, most int) error {
	if len(list) > most {
		return farm.Invalid(field, "must have at most %d elements", most)
	}
	return nil
}

// cut keeps the beginning of each text and makes it printable.
func cut(most int, texts ...*string) {
	for _, t := range texts {
		*t = Text(*t, most)
	}
}

// Text keeps the first bytes of a text, whole characters only, and makes it printable.
func Text(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return sanitize.EscapeText(s)
}

// cutLines keeps the end of a text of several lines, which has the error, and makes it printable.
func cutLines(text *string) {
	*text = sanitize.EscapeLines(strings.ToValidUTF8((*text)[max(0, len(*text)-MaxMessage):], ""))
}

// number is a count or a measurement.
type number interface{ ~int | ~int64 }

// clamp puts each number between 0 and most.
func clamp[N number](most N, numbers ...*N) {
	for _, n := range numbers {
		*n = min(max(*n, 0), most)
	}
}

// clampShare puts each number between 0 and 1; NaN becomes 0.
func clampShare(shares ...*float64) {
	for _, s := range shares {
		if !(*s >= 0) { // NaN is not less than 0 either
			*s = 0
		}
		*s = min(*s, 1)
	}
}

// head keeps the first elements of a list, at most most of them, as far as their texts have maxLists bytes.
func head[T any](list []T, most int, size func(*T) int) []T {
	list = list[:min(len(list), most)]
	bytes := 0
	for i := range list {
		if bytes += size(&list[i]); bytes > maxLists {
			return list[:i]
		}
	}
	return list
}
