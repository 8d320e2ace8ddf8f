// SPDX-License-Identifier: Apache-2.0

package files

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"syscall"
)

// machines maps each GOARCH to the processor's number in ELF files.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// Unstartable explains the error err with which the system refused to start a file, as far as err
// and the file's first bytes show the cause. The system reports a missing interpreter as if the
// file itself did not exist.
func Unstartable(path string, err error) string {
	missing := errors.Is(err, fs.ErrNotExist)
	switch {
	case errors.Is(err, syscall.ETXTBSY):
		return "a program has it open to write, such as a copy that is not complete; copy it under another name, and move it"
	case errors.Is(err, fs.ErrPermission):
		return "the file system may be mounted with noexec, or a security module forbids it"
	case !missing && !errors.Is(err, syscall.ENOEXEC) && !errors.Is(err, syscall.EIO): // EIO: a truncated file
		return ""
	}
	file, err := os.Open(path)
	if err != nil {
		return "the file was removed"
	}
	defer file.Close()
	first := make([]byte, 128)
	n, _ := io.ReadFull(file, first)
	first = first[:n]
	line, _, _ := bytes.Cut(first, []byte("\n"))
	switch script := bytes.HasPrefix(line, []byte("#!")); {
	case n == 0:
		return "the file is empty"
	case script && bytes.HasSuffix(line, []byte("\r")):
		return "its lines end with CR LF, which is taken for a part of the interpreter's name; write LF"
	case script && missing:
		return fmt.Sprintf("its interpreter %q does not exist", bytes.TrimSpace(line[2:]))
	case missing:
		return "its dynamic loader does not exist; link it statically, or for the C library of this system"
	case bytes.HasPrefix(first, []byte(elf.ELFMAG)) && n >= 20:
		machine := binary.LittleEndian.Uint16(first[18:])
		if elf.Data(first[elf.EI_DATA]) == elf.ELFDATA2MSB {
			machine = binary.BigEndian.Uint16(first[18:])
		}
		if elf.Machine(machine) == machines[runtime.GOARCH] {
			return "it is cut short or damaged; build or copy it again"
		}
		return fmt.Sprintf("it is a program for %s processors, this machine is %s; build it with GOARCH=%s",
			strings.TrimPrefix(elf.Machine(machine).String(), "EM_"), runtime.GOARCH, runtime.GOARCH)
	case !script:
		return "it is neither a program of this system nor a script that begins with #!"
	}
	return ""
}
