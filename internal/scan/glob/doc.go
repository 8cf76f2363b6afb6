// Package glob matches paths and names with patterns of the configuration: ? is one character of an element, * any
// number of them, [a-z] and [!a-z] one of a set, ** as a whole element any number of elements, and \ takes the
// special meaning of the next character.
//
// It reads no directories and knows no file system: it compares texts. Case counts.
//
// Invariant: a comparison takes at most time proportional to the length of the path times that of the pattern, whatever
// both are, and a pattern has at most 1 KiB.
package glob
