/* SPDX-License-Identifier: Apache-2.0 */
/* The hooks that can jump. A thunk saves the integer arguments, gets the name and the target from
 * the router, restores the arguments and jumps. The caller's return address stays on top, so that
 * ld.so sees the true caller (RUNPATH, $ORIGIN, RTLD_NEXT, namespaces). C++ does not guarantee such
 * a tail call. dl* functions take no vector arguments. If the target is null, the thunk returns the
 * other word.
 *
 * dlopen and dlmopen have two forms. The exports go on to the next hook. The others, to which our
 * dlvsym leads, go on to libc: without the guard, dlvsym would have found libc's function, because
 * another library's hook has no version.
 *
 * cudaguard_route_dlopen(const char *name, const void *return_address, int mode) -> {name, target}
 * The routers of dlmopen and dlvsym get its first argument, the namespace or the handle, as their
 * last one.
 */
.macro EXPORT name, router, slot /* with a second name, because another library's may come first */
	THUNK	\name, \router, \slot
	.globl	cudaguard_\name
	.hidden	cudaguard_\name
	.set	cudaguard_\name, \name
.endm
.macro LIBCS name, router, slot
	.hidden	cudaguard_libcs_\name
	THUNK	cudaguard_libcs_\name, \router, \slot
.endm

#if defined(__x86_64__)

	.section .note.gnu.property,"a",@note /* IBT, SHSTK: endbr64 comes first, returns match */
	.p2align 3
	.long 4, 16, 5
	.asciz "GNU"
	.long 0xc0000002, 4, 3, 0

/* \slot: the stack offset of the saved name */
.macro THUNK name, router, slot
	.section .text.unlikely.thunks,"ax",@progbits
	.p2align 4
	.globl	\name
	.type	\name, @function
\name:
	.cfi_startproc
	endbr64
	pushq	%rdi
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rdi, 0
	pushq	%rsi
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rsi, 0
	pushq	%rdx
	.cfi_adjust_cfa_offset 8
	.cfi_rel_offset %rdx, 0
	movq	\slot(%rsp), %rdi
	movq	(\slot - 8)(%rsp), %rdx /* the mode or version is the argument after the name */
	movq	24(%rsp), %rsi
	movq	16(%rsp), %rcx
	call	\router
	movq	%rdx, %r11
	movq	%rax, \slot(%rsp)
	popq	%rdx
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rdx
	popq	%rsi
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rsi
	popq	%rdi
	.cfi_adjust_cfa_offset -8
	.cfi_restore %rdi
	testq	%r11, %r11
	jz	1f
	jmp	*%r11
1:	ret
	.cfi_endproc
	.size	\name, . - \name
.endm

	/* The first code begins a page, because the table of symbols is in the one before
	 * (hook/later_lookups). Linkers put sections of this name first. */
	.section .text.unlikely.thunks,"ax",@progbits
	.p2align 12
	EXPORT	dlopen, cudaguard_route_dlopen, 16
	EXPORT	dlmopen, cudaguard_route_dlmopen, 8
	EXPORT	dlvsym, cudaguard_route_dlvsym, 8
	LIBCS	dlopen, cudaguard_route_libcs_dlopen, 16
	LIBCS	dlmopen, cudaguard_route_libcs_dlmopen, 8

#elif defined(__aarch64__)

	.section .note.gnu.property,"a",@note /* BTI and PAC */
	.p2align 3
	.long 4, 16, 5
	.asciz "GNU"
	.long 0xc0000000, 4, 3, 0

.macro THUNK name, router, slot
	.text
	.p2align 4
	.globl	\name
	.type	\name, %function
\name:
	.cfi_startproc
	hint	#34 /* bti c */
	stp	x0, x1, [sp, #-32]!
	.cfi_adjust_cfa_offset 32
	stp	x2, x30, [sp, #16]
	.cfi_rel_offset x30, 24
	mov	x3, x0
	ldr	x0, [sp, #\slot]
	ldr	x2, [sp, #(\slot + 8)] /* the mode or version is the argument after the name */
	mov	x1, x30
	bl	\router
	mov	x16, x1
	mov	x17, x0
	str	x0, [sp, #\slot]
	ldp	x2, x30, [sp, #16]
	.cfi_restore x30
	ldp	x0, x1, [sp], #32
	.cfi_adjust_cfa_offset -32
	cbz	x16, 1f
	br	x16
1:	mov	x0, x17
	ret
	.cfi_endproc
	.size	\name, . - \name
.endm

	EXPORT	dlopen, cudaguard_route_dlopen, 0
	EXPORT	dlmopen, cudaguard_route_dlmopen, 8
	EXPORT	dlvsym, cudaguard_route_dlvsym, 8
	LIBCS	dlopen, cudaguard_route_libcs_dlopen, 0
	LIBCS	dlmopen, cudaguard_route_libcs_dlmopen, 8

#else
#error "cudaguard knows x86-64 and AArch64"
#endif

	.section .note.GNU-stack,"",%progbits
