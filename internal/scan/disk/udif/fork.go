package udif

import (
	"encoding/binary"

	"github.com/buildyard/buildyard/internal/scan/disk/chunked"
)

// Parts of a resource fork; all numbers are big-endian. Source: "Inside Macintosh: More Macintosh Toolbox", Resource
// Manager.
const (
	forkHeaderBytes = 16 // offsets of data and map, lengths of both
	forkMapBytes    = 28 // of the map before its list of types
	forkTypeBytes   = 8
	forkRefBytes    = 12
)

// tablesOfFork returns the resources of type blkx of a resource fork.
func tablesOfFork(fork []byte) ([][]byte, error) {
	if len(fork) < forkHeaderBytes {
		return nil, chunked.Damaged("its resource fork has %d bytes", len(fork))
	}
	be := binary.BigEndian
	data, errData := part(fork, be.Uint32(fork), be.Uint32(fork[8:]))
	list, errMap := part(fork, be.Uint32(fork[4:]), be.Uint32(fork[12:]))
	if errData != nil || errMap != nil || len(list) < forkMapBytes {
		return nil, chunked.Damaged("its resource fork has a map of %d bytes", len(list))
	}
	types, err := from(list, int(be.Uint16(list[24:])), 2)
	if err != nil {
		return nil, err
	}
	for k := range int(be.Uint16(types)) + 1 { // the number of types less one; 0xffff = none
		entry, err := from(types, 2+k*forkTypeBytes, forkTypeBytes)
		if err != nil {
			return nil, err
		}
		if string(entry[:4]) == "blkx" {
			return forkResources(data, types, int(be.Uint16(entry[6:])), int(be.Uint16(entry[4:]))+1)
		}
	}
	return nil, chunked.Damaged("its resource fork has no block tables")
}

// forkResources returns n resources of one type, whose references are at an offset of the list of types.
func forkResources(data, types []byte, at, n int) ([][]byte, error) {
	if n > maxTables {
		return nil, chunked.Damaged("it has %d block tables", n)
	}
	var out [][]byte
	for k := range n {
		ref, err := from(types, at+k*forkRefBytes, forkRefBytes)
		if err != nil {
			return nil, err
		}
		head, err := from(data, int(binary.BigEndian.Uint32(ref[4:])&(1<<24-1)), 4)
		if err != nil {
			return nil, err
		}
		table, err := part(head, 4, binary.BigEndian.Uint32(head))
		if err != nil {
			return nil, err
		}
		out = append(out, table)
	}
	return out, nil
}

// from returns the bytes from an offset on, at least a number of them.
func from(b []byte, at, least int) ([]byte, error) {
	if at > len(b) || len(b)-at < least {
		return nil, chunked.Damaged("its resource fork ends within a list")
	}
	return b[at:], nil
}

// part returns n bytes from an offset.
func part(b []byte, at, n uint32) ([]byte, error) {
	if int64(at)+int64(n) > int64(len(b)) {
		return nil, chunked.Damaged("its resource fork ends within a resource")
	}
	return b[at : int64(at)+int64(n)], nil
}
